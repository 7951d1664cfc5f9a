// SPDX-License-Identifier: Apache-2.0
// Kernels in CUDA graphs and on streams of their own: a replayed graph and launches side by side give the bits of a
// call.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "tests/support/gpu_launch.h"

#if AMPCHECK_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ampcheck::checks {
namespace {

#if AMPCHECK_HAS_CUDA

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("[") + what + "] got " + cudaGetErrorName(status));
}

/// The forward or backward of a case with its tensors on the device, to be launched often. Every launch begins with the
/// same written buffers.
class DeviceLaunch {
 public:
  DeviceLaunch(const OpDef& op, const OpCall& call, bool backward)
      : run_(op, call, options_),
        kernel_(backward ? op.kernel.backward : op.kernel.forward),
        attributes_(call.attributes) {
    const NamedValues& inputs = run_.reference.inputs();
    LaunchTensors tensors = run_.forward_tensors(inputs, 0);
    if (backward) {
      const LaunchResult forward = run_.run_forward(tensors);
      tensors = run_.backward_tensors(inputs, forward, run_.cotangents(relations_probe(call)), 0);
    }
    for (auto* group : {&tensors.read, &tensors.write})
      for (auto& [name, tensor] : *group) {
        if (tensors.in_place.contains(name)) continue;
        place(name, tensor);
      }
    for (const auto& [name, from] : tensors.in_place) call_.tensors.emplace_back(name, *call_.find(from));
    call_.attributes = &attributes_;
    call_.device = Device::cuda;
  }

  /// Everything on the device as at the start.
  void reset() const {
    for (const Buffer& b : buffers_)
      kernels::copy_to_device(b.device.get(), b.host.bytes().data(), b.host.bytes().size());
    kernels::synchronize_device();  // other streams do not wait for these copies
  }
  void enqueue(cudaStream_t stream) {
    call_.stream = stream;
    kernel_(call_);
  }
  /// Bytes of every buffer now, guards included.
  std::vector<std::vector<std::byte>> bytes() const {
    std::vector<std::vector<std::byte>> out;
    for (const Buffer& b : buffers_) {
      out.emplace_back(b.host.bytes().size());
      kernels::copy_to_host(out.back().data(), b.device.get(), out.back().size());
    }
    return out;
  }

 private:
  struct Buffer {
    GuardedTensor host;
    std::shared_ptr<void> device;
  };
  void place(const std::string& name, const GuardedTensor& tensor) {
    Buffer b{tensor.clone(), kernels::allocate_on_device(tensor.bytes().size())};
    TensorView view = b.host.view();
    view.data = static_cast<std::byte*>(b.device.get()) + (static_cast<std::byte*>(view.data) - b.host.bytes().data());
    call_.tensors.emplace_back(name, view);
    buffers_.push_back(std::move(b));
  }

  RunOptions options_;
  CaseRun run_;
  kernels::KernelFn kernel_;
  Attributes attributes_;
  kernels::KernelCall call_;
  std::vector<Buffer> buffers_;
};

struct OwnStream {
  cudaStream_t stream = nullptr;
  OwnStream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~OwnStream() { cudaStreamDestroy(stream); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
};

/// The launch as a graph on a stream, replayed twice from the same start.
std::vector<std::vector<std::byte>> replayed(DeviceLaunch& launch, cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    launch.enqueue(stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t program = nullptr;
  check(cudaGraphInstantiate(&program, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 2; ++i) {
    launch.reset();
    check(cudaGraphLaunch(program, stream), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream), "replay");
  }
  cudaGraphExecDestroy(program);
  cudaGraphDestroy(graph);
  return launch.bytes();
}

std::vector<std::unique_ptr<DeviceLaunch>> launches_of(Dtype storage) {
  std::vector<std::unique_ptr<DeviceLaunch>> out;
  for (const OpDef& op : all_ops())
    for (const bool backward : {false, true})
      if (!backward || op.kernel.backward)
        out.push_back(std::make_unique<DeviceLaunch>(op, default_call(op.signature, storage), backward));
  return out;
}

std::vector<std::vector<std::byte>> called(DeviceLaunch& launch) {
  launch.reset();
  launch.enqueue(nullptr);
  kernels::synchronize_device();
  return launch.bytes();
}

TEST(CudaGraphs, AReplayHasTheBitsOfACall) {
  AMPCHECK_NEEDS_CUDA();
  const WithoutCublas plain;
  const OwnStream own;
  int count = 0;
  for (const OpDef& op : all_ops())
    for (const Dtype storage : op.signature.precision.storage)
      for (const bool backward : {false, true}) {
        if (backward && !op.kernel.backward) continue;
        const std::string what = op.signature.name + (backward ? " backward " : " forward ") + name(storage);
        try {
          DeviceLaunch launch(op, default_call(op.signature, storage), backward);
          const auto want = called(launch);  // also loads what a capture may not
          EXPECT_EQ(replayed(launch, own.stream), want) << what;
          ++count;
        } catch (const std::exception& e) {
          ADD_FAILURE() << what << ": " << e.what();
        }
      }
  summary_line(fmt::format("{} graphs, each replayed twice", count));
}

/// The library may choose another order in a graph: that it can be captured is what counts, the bits are a record.
TEST(CudaGraphs, CublasCanBeCaptured) {
  AMPCHECK_NEEDS_CUDA();
  const OwnStream own;
  const OpDef& op = *find_op("linear");
  for (const bool backward : {false, true}) {
    DeviceLaunch launch(op, default_call(op.signature, Dtype::bf16), backward);
    const auto want = called(launch);
    const bool alike = replayed(launch, own.stream) == want;
    summary_line(fmt::format("linear {} with cuBLAS: a replay has {} bits", backward ? "backward" : "forward",
                             alike ? "the same" : "other"));
  }
}

/// All ops at once on four streams, twenty times over, against one at a time.
TEST(CudaStreams, SideBySideTheyHaveTheBitsOfOneAtATime) {
  AMPCHECK_NEEDS_CUDA();
  const WithoutCublas plain;
  constexpr int kStreams = 4, kTurns = 20;
  const OwnStream streams[kStreams];
  auto launches = launches_of(Dtype::bf16);
  std::vector<std::vector<std::vector<std::byte>>> want;
  for (const auto& launch : launches) want.push_back(called(*launch));
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const auto& launch : launches) launch->reset();
    kernels::synchronize_device();
    for (std::size_t i = 0; i < launches.size(); ++i)
      launches[i]->enqueue(streams[(i + static_cast<std::size_t>(turn)) % kStreams].stream);
    kernels::synchronize_device();
    for (std::size_t i = 0; i < launches.size(); ++i) EXPECT_EQ(launches[i]->bytes(), want[i]) << "launch " << i;
  }
  summary_line(fmt::format("{} launches on {} streams, {} turns", launches.size(), kStreams, kTurns));
}

#else

TEST(CudaGraphs, AReplayHasTheBitsOfACall) { GTEST_SKIP() << "this program was built without CUDA"; }

#endif

}  // namespace
}  // namespace ampcheck::checks
