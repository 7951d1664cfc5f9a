// SPDX-License-Identifier: Apache-2.0
// What the gradient scaler, the optimizer and the statistics of a run on the GPU cost, as rates of the memory that they
// must move, against a copy on the device. tools/gpu/torch_times.py measures torch's own on the same tensors.
#include <cuda_runtime_api.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "kernels/multi_tensor.h"
#include "src/amp/tensor_stats.h"
#include "tools/gpu/probe.h"

namespace ampcheck::gpu {

namespace {

constexpr std::int64_t kTensors = 64, kElements = 1 << 20;  ///< in each
constexpr int kRounds = 10;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("[") + what + "] got " + cudaGetErrorName(status));
}

/// Seconds of the fastest of kRounds; the first, in which memory moves to the device, does not count.
double fastest(const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < kRounds + 1; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const double t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) best = std::min(best, t);
  }
  return best;
}

/// Bytes read and written by a copy of `bytes`, a second.
double copy_rate(std::size_t bytes) {
  void *from = nullptr, *to = nullptr;
  check(cudaMalloc(&from, bytes), "cudaMalloc");
  check(cudaMalloc(&to, bytes), "cudaMalloc");
  check(cudaMemset(from, 1, bytes), "cudaMemset");
  const double t = fastest([&] {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "copy");
    check(cudaDeviceSynchronize(), "copy");
  });
  cudaFree(from);
  cudaFree(to);
  return 2.0 * static_cast<double>(bytes) / t;
}

std::vector<Tensor> tensors(kernels::Stream& stream, Dtype dtype, double value) {
  const MemoryScope scope(&stream);
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < kTensors; ++i) {
    out.emplace_back(dtype, Shape{kElements});
    std::vector<double> values(static_cast<std::size_t>(kElements));
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = value * (1 + static_cast<double>(k % 1000) * 1e-3);
    from_doubles(values, out.back().view());
  }
  return out;
}

struct Measured {
  Json entries = Json::array();
  double copy = 0;
  void add(const std::string& what, double bytes, double seconds) {
    const double rate = bytes / seconds;
    entries.push_back(
        {{"what", what}, {"bytes", bytes}, {"seconds", seconds}, {"bytes_per_second", rate}, {"of_copy", rate / copy}});
    char line[200];
    std::snprintf(line, sizeof line, "%s: %.3f ms, %.0f GB/s, %.2f of a copy", what.c_str(), seconds * 1e3, rate * 1e-9,
                  rate / copy);
    say(line);
  }
};

void measure_unscale(kernels::Stream& stream, Dtype dtype, Measured& out) {
  const std::vector<Tensor> grads = tensors(stream, dtype, 1e-3);
  std::vector<TensorView> views;
  for (const Tensor& grad : grads) views.push_back(grad.view());
  float found = 0;
  const double t = fastest([&] { kernels::unscale_at_once(stream, views, 0.5f, found); });
  const auto bytes = static_cast<double>(2 * kTensors * kElements * ampcheck::bytes(dtype));
  out.add(std::string("unscale ") + name(dtype), bytes, t);
}

/// fp32 weights, gradients and moments: four read, three written.
void measure_adam(kernels::Stream& stream, Measured& out) {
  std::vector<Tensor> values = tensors(stream, Dtype::fp32, 1), grads = tensors(stream, Dtype::fp32, 1e-3);
  std::vector<Parameter> parameters(static_cast<std::size_t>(kTensors));
  std::vector<Parameter*> pointers;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].name = std::to_string(i);
    parameters[i].value = values[i];
    parameters[i].grad = grads[i];
    pointers.push_back(&parameters[i]);
  }
  AdamOptions options;
  options.fused = true;
  Adam adam(pointers, options);
  adam.set_multi_tensor(
      [&](std::span<const TensorUpdate> updates, const UpdateRule& rule, std::span<UpdateCounts> counts) {
        kernels::update_at_once(stream, updates, rule, counts);
      });
  const MemoryScope scope(&stream);  // of the moments
  const double t = fastest([&] {
    adam.step();
    stream.wait();
  });
  out.add("fused Adam fp32", static_cast<double>(7 * 4 * kTensors * kElements), t);
}

/// They are the host's: what the device wrote travels to it. Read once.
void measure_statistics(kernels::Stream& stream, Dtype dtype, Measured& out) {
  const std::vector<Tensor> grads = tensors(stream, dtype, 1e-3);
  std::vector<TensorView> views;
  for (const Tensor& grad : grads) views.push_back(grad.view());
  float found = 0;
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    kernels::unscale_at_once(stream, views, 0.5f, found);  // all of it on the device
    const auto start = std::chrono::steady_clock::now();
    for (const TensorView& view : views) static_cast<void>(tensor_stats(view));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  out.add(std::string("statistics by the host ") + name(dtype),
          static_cast<double>(kTensors * kElements * ampcheck::bytes(dtype)), best);
}

}  // namespace

Json bandwidth() {
  Measured out;
  out.copy = copy_rate(static_cast<std::size_t>(kTensors * kElements) * 4);
  char line[100];
  std::snprintf(line, sizeof line, "copy on the device: %.0f GB/s, read and written", out.copy * 1e-9);
  say(line);
  const std::unique_ptr<kernels::Stream> stream = kernels::make_cuda_stream();
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) measure_unscale(*stream, dtype, out);
  measure_adam(*stream, out);
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) measure_statistics(*stream, dtype, out);
  return {
      {"tensors", kTensors}, {"elements", kElements}, {"copy_bytes_per_second", out.copy}, {"measured", out.entries}};
}

}  // namespace ampcheck::gpu
