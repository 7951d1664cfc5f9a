// SPDX-License-Identifier: Apache-2.0
#include "tools/report/environment.h"

#include <unistd.h>

#include <fstream>

#include "src/parallel.h"
#include "src/rounding.h"

#ifdef AMPCHECK_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ampcheck::tools {

namespace {

std::string cpu_name() {
  std::ifstream facts("/proc/cpuinfo");
  for (std::string line; std::getline(facts, line);)
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  return "unknown";
}

/// Highway's names of targets, as people call them.
std::string common_name(std::string_view target) {
  if (target == "AVX3") return "AVX-512";
  if (target == "AVX3_DL") return "AVX-512 (Ice Lake)";
  if (target == "AVX3_ZEN4") return "AVX-512 (Zen 4)";
  return std::string(target);
}

#ifdef AMPCHECK_HAS_CUDA
std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
#endif

}  // namespace

BuildFacts build_facts() {
  BuildFacts facts;
  facts.version = AMPCHECK_VERSION;
#if defined(__clang__)
  facts.compiler = "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__);
#else
  facts.compiler = "gcc " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__);
#endif
#ifdef AMPCHECK_HAS_CUDA
  facts.cuda = true;
  facts.cuda_version = cuda_version_text(CUDART_VERSION);
#endif
  return facts;
}

MachineFacts machine_facts() {
  MachineFacts facts;
  facts.cpu = cpu_name();
  facts.simd = common_name(simd_target());
  for (const std::string_view target : simd_targets()) facts.simd_targets.push_back(common_name(target));
  facts.threads = threads();
  return facts;
}

bool cuda_is_possible() {
#ifdef AMPCHECK_HAS_CUDA
  return ::access("/dev/nvidiactl", F_OK) == 0 || ::access("/dev/dxg", F_OK) == 0;  // the latter: WSL
#else
  return false;
#endif
}

CudaFacts cuda_facts() {
  CudaFacts facts;
#ifdef AMPCHECK_HAS_CUDA
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0) facts.driver = cuda_version_text(driver);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (facts.driver.empty())
    facts.reason = "no NVIDIA driver on this machine";
  else if (status != cudaSuccess)
    facts.reason = std::string("the CUDA runtime says: ") + cudaGetErrorString(status);
  else if (count == 0)
    facts.reason = "no CUDA device on this machine";
  for (int i = 0; status == cudaSuccess && i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    facts.devices.push_back({properties.name, properties.major, properties.minor,
                             static_cast<double>(properties.totalGlobalMem) / (1024.0 * 1024.0 * 1024.0)});
  }
  facts.usable = facts.reason.empty();
#else
  facts.reason = "this build was made without CUDA (AMPCHECK_CUDA)";
#endif
  return facts;
}

}  // namespace ampcheck::tools
