// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on tensors in guarded buffers of a chosen layout, and sees what it did to memory.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/error.h"
#include "src/launch_notes.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// How the elements of a tensor lie in its buffer.
enum class Layout { dense, padded, last2, transposed, expanded };
/// The layout of one tensor under a case's `layout=NAME` or `layout=NAME:tensor`.
Layout layout_of(const std::string& case_layout, const std::string& tensor);

/// A tensor between two guard bands of 4 KiB. Guards and stride gaps hold a fill pattern.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  /// `fill` is repeated over the whole buffer: the bits of one element.
  GuardedTensor(Dtype dtype, const Shape& shape, Layout layout, std::uint64_t fill);

  const TensorView& view() const { return view_; }
  /// The whole buffer, guards included.
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(buffer_.data()), static_cast<std::size_t>(buffer_.count())};
  }
  /// Puts values into the elements.
  void assign(const std::vector<double>& values) { from_doubles(values, view_); }
  /// A copy with the same layout whose memory is its own.
  GuardedTensor clone() const;
  /// Bytes outside the elements differ from those of `before`: number of such bytes.
  std::int64_t changed_outside(const GuardedTensor& before) const;
  /// Where they lie, in words: before, behind or between the elements, and how far.
  std::string where_outside(const GuardedTensor& before) const;
  bool same_bytes(const GuardedTensor& other) const;

 private:
  Tensor buffer_;  // bytes, 64-byte aligned
  TensorView view_;
};

/// Number of elements of two tensors of one layout whose bits differ, NaN payloads included.
std::int64_t differing(const GuardedTensor& a, const GuardedTensor& b);

/// Two fills for buffers that a kernel must write: NaNs of two payloads (integers: two absurd values).
std::uint64_t poison(Dtype dtype, int which);

/// What was seen around one launch.
struct LaunchResult {
  std::map<std::string, GuardedTensor> written;      ///< outputs, saved tensors or gradients after the call
  std::vector<std::string> overrun;                  ///< tensors around which guard bytes changed
  std::map<std::string, std::string> overrun_where;  ///< of these, in words
  std::vector<std::string> clobbered;                ///< inputs whose bytes changed
  std::vector<LaunchNote> notes;                     ///< what a simulated GPU saw
};

/// Tensors of one call by name. In-place outputs share the buffer of their input.
struct LaunchTensors {
  std::map<std::string, GuardedTensor> read;
  std::map<std::string, GuardedTensor> write;   ///< as prefilled
  std::map<std::string, std::string> in_place;  ///< written name -> read name
};

/// Copies of read tensors that a launch left as they were, for the next one that reads the same memory: the last of
/// each name.
struct LaunchCopies {
  struct Copy {
    GuardedTensor from, copy;
  };
  std::map<std::string, Copy> of;
};

/// A kernel threw std::bad_alloc.
struct KernelWithoutMemory : Error {
  using Error::Error;
};

/// Calls the kernel on copies of the tensors, on the host or the CUDA device, and compares memory before and after.
/// `cancel`: what the kernel may ask whether its result is still wanted. `copies`: kept from launch to launch.
LaunchResult launch(const kernels::KernelFn& kernel, const LaunchTensors& tensors, const Attributes& attributes,
                    Device device, const std::atomic<bool>* cancel = nullptr, LaunchCopies* copies = nullptr);

/// Counts as a launch while it lives: around a kernel that is called elsewhere.
class RunningLaunch {
 public:
  RunningLaunch();
  ~RunningLaunch();
  RunningLaunch(const RunningLaunch&) = delete;
  RunningLaunch& operator=(const RunningLaunch&) = delete;

 private:
  std::multiset<std::chrono::steady_clock::time_point>::iterator at_;
};

/// How long the longest of the launches that now run has been running; 0 if none is.
double seconds_in_launch();

}  // namespace ampcheck::checks
