// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/device_choice.h"

#include <fmt/format.h>

#include <cstdlib>

#include "src/error.h"
#include "src/line_errors.h"
#include "src/ptx/gpu.h"
#include "src/ptx/program.h"
#include "src/ptx/stand_in.h"
#include "tools/report/environment.h"

namespace ampcheck::tools {

namespace {
// In the environment of processes that this one starts.
constexpr const char *kAsked = "AMPCHECK_SIMULATED_GPU", *kFollowed = "AMPCHECK_FOLLOWED_LINES",
                     *kFused = "AMPCHECK_FUSED_PRODUCTS";
}  // namespace

void simulate_gpu() {
  ptx::stand_in_for_cuda();
  ptx::simulate_gpu(true);
  setenv(kAsked, "1", 1);
}

void follow_lines_of_kernels() {
  follow_lines(true);
  setenv(kFollowed, "1", 1);
}

void fuse_products_of_kernels() {
  ptx::set_decode_options({.fuse = true});
  setenv(kFused, "1", 1);
}

void simulate_gpu_as_asked() {
  if (std::getenv(kAsked) != nullptr) simulate_gpu();
  if (std::getenv(kFollowed) != nullptr) follow_lines(true);
  if (std::getenv(kFused) != nullptr) ptx::set_decode_options({.fuse = true});
}

std::string require_device(Device device) {
  if (device == Device::cpu)
    return cuda_is_possible() ? "kernels run with the CPU's bit-exact arithmetic (--device cuda: on the GPU)"
                              : "no CUDA device: kernels run with the CPU's bit-exact arithmetic";
  if (ptx::simulates_gpu()) return "CUDA kernels run on a simulated GPU";
  const CudaFacts facts = cuda_facts();
  if (!facts.usable)
    throw EnvironmentError("[--device] got cuda, but " + facts.reason +
                           "; want --device cpu (ampcheck doctor says more)");
  const CudaDevice& first = facts.devices.front();
  return fmt::format("{} (sm_{}{})", first.name, first.major, first.minor);
}

}  // namespace ampcheck::tools
