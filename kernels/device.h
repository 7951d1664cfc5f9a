// SPDX-License-Identifier: Apache-2.0
// The cuda device: is it there, what is it, and its memory. Without CUDA it is a device that is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/tensor.h"

namespace ampcheck::kernels {

/// True if a kernel can run on the cuda device; otherwise *why says what is missing (build, driver or GPU).
bool cuda_available(std::string* why = nullptr);
/// Number of GPUs; 0 where cuda_available() is false.
int cuda_device_count();
/// Name and compute capability of a GPU, "NVIDIA H100 80GB HBM3 (sm_90)"; EnvironmentError if it is not there.
std::string cuda_device_name(int device = 0);

/// Compute capability of the first GPU, 9 and 0 of sm_90; false if there is none.
bool cuda_compute_capability(int& major, int& minor);

/// Device memory. EnvironmentError where the device is not there, Error if a call fails.
std::shared_ptr<void> allocate_on_device(std::size_t bytes);
void copy_to_device(void* device, const void* host, std::size_t bytes);
void copy_to_host(void* host, const void* device, std::size_t bytes);
/// Waits for all work on the device, and throws what a kernel left behind.
void synchronize_device();

/// A copy of a view's memory on the device: the whole span from its lowest to its highest element, so that strides,
/// gaps and guards keep their places.
class DeviceTensor {
 public:
  explicit DeviceTensor(const TensorView& host);
  const TensorView& view() const { return view_; }
  /// Brings the span back into the host tensor.
  void download() const;

 private:
  TensorView host_, view_;
  std::shared_ptr<void> memory_;
  std::byte* host_begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ampcheck::kernels
