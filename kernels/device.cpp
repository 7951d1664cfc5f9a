// SPDX-License-Identifier: Apache-2.0
#include "kernels/device.h"

#include <cstring>
#include <new>

#if AMPCHECK_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

#include "kernels/stream.h"
#include "src/error.h"
#include "src/ptx/gpu.h"

namespace ampcheck::kernels {

#if AMPCHECK_HAS_CUDA

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw Error("[device] " + std::string(what) + " failed, got " + cudaGetErrorName(status) + " (" +
                cudaGetErrorString(status) + "), want cudaSuccess");
}

void insist() {
  std::string why;
  if (!cuda_available(&why)) throw EnvironmentError("[device] cuda is not there: " + why);
}

}  // namespace

bool cuda_available(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  if (why != nullptr)
    *why = status == cudaSuccess ? "the driver knows no GPU" : std::string(cudaGetErrorString(status));
  static_cast<void>(cudaGetLastError());  // the next launch must not report it again
  return false;
}

int cuda_device_count() {
  int count = 0;
  return cuda_available() && cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string cuda_device_name(int device) {
  insist();
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return std::string(properties.name) + " (sm_" + std::to_string(properties.major) + std::to_string(properties.minor) +
         ")";
}

bool cuda_compute_capability(int& major, int& minor) {
  return cuda_available() && cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess;
}

namespace {

std::shared_ptr<void> allocate_real(std::size_t bytes) {
  insist();
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cudaMalloc");
  return {memory, [](void* p) { cudaFree(p); }};
}

void copy_to_real(void* device, const void* host, std::size_t bytes) {
  check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the device");
}

void copy_from_real(void* host, const void* device, std::size_t bytes) {
  check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the device");
}

void synchronize_real() { check(cudaDeviceSynchronize(), "kernel"); }

class CudaStream final : public Stream {
 public:
  CudaStream() : Stream(managed) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaStream() override { cudaStreamDestroy(stream_); }

 private:
  static std::shared_ptr<void> managed(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMallocManaged(&memory, bytes), "cudaMallocManaged");
    return {memory, [](void* p) { cudaFree(p); }};
  }
  void enqueue(const KernelFn& kernel, const KernelCall& call) override {
    KernelCall there = call;
    there.device = Device::cuda;
    there.stream = stream_;
    kernel(there);
  }
  void finish() override { check(cudaStreamSynchronize(stream_), "kernel"); }

  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream() {
  insist();
  return std::make_unique<CudaStream>();
}

#else

namespace {

[[noreturn]] void not_there() {
  throw EnvironmentError("[device] cuda is not there: this program was built without CUDA");
}
std::shared_ptr<void> allocate_real(std::size_t) { not_there(); }
void copy_to_real(void*, const void*, std::size_t) { not_there(); }
void copy_from_real(void*, const void*, std::size_t) { not_there(); }
void synchronize_real() { not_there(); }

}  // namespace

bool cuda_available(std::string* why) {
  if (why != nullptr) *why = "this program was built without CUDA";
  return false;
}
int cuda_device_count() { return 0; }
std::string cuda_device_name(int) { not_there(); }
bool cuda_compute_capability(int&, int&) { return false; }
std::unique_ptr<Stream> make_cuda_stream() { not_there(); }

#endif

std::shared_ptr<void> allocate_on_device(std::size_t bytes) {
  if (!ptx::on_simulated_gpu()) return allocate_real(bytes);
  ptx::Gpu& gpu = ptx::Gpu::instance();
  void* const memory = gpu.allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [&gpu](void* p) { gpu.release(p); }};
}

void copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (!ptx::on_simulated_gpu()) return copy_to_real(device, host, bytes);
  ptx::Gpu::instance().touch(device, bytes);
  std::memcpy(device, host, bytes);
}

void copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (!ptx::on_simulated_gpu()) return copy_from_real(host, device, bytes);
  std::memcpy(host, device, bytes);
}

void synchronize_device() {
  if (!ptx::on_simulated_gpu()) synchronize_real();  // there a launch is over when it returns
}

DeviceTensor::DeviceTensor(const TensorView& host) : host_(host), view_(host) {
  std::int64_t low = 0, high = host.count() > 0 ? 1 : 0;  // elements, relative to data
  for (int i = 0; i < host.shape.rank && host.count() > 0; ++i)
    (host.strides[i] < 0 ? low : high) += (host.shape[i] - 1) * host.strides[i];
  const std::int64_t element = bytes(host.dtype);
  bytes_ = static_cast<std::size_t>((high - low) * element);
  host_begin_ = static_cast<std::byte*>(host.data) + low * element;
  memory_ = allocate_on_device(bytes_);
  if (bytes_ > 0) copy_to_device(memory_.get(), host_begin_, bytes_);
  view_.data = static_cast<std::byte*>(memory_.get()) - low * element;
}

void DeviceTensor::download() const {
  if (bytes_ > 0) copy_to_host(host_begin_, memory_.get(), bytes_);
}

}  // namespace ampcheck::kernels
