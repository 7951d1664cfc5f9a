// SPDX-License-Identifier: Apache-2.0
// What this build and this machine are.
#pragma once

#include <string>
#include <vector>

namespace ampcheck::tools {

struct BuildFacts {
  std::string version;  ///< "0.1.0"
  std::string compiler;
  bool cuda = false;         ///< kernels were compiled by nvcc
  std::string cuda_version;  ///< of the runtime compiled in, "13.0"
};
BuildFacts build_facts();

struct MachineFacts {
  std::string cpu;   ///< model name, or the architecture
  std::string simd;  ///< target of the bulk conversions, as people call it: "AVX2", "AVX-512"
  std::vector<std::string> simd_targets;
  int threads = 1;
};
MachineFacts machine_facts();

struct CudaDevice {
  std::string name;
  int major = 0, minor = 0;
  double memory_gib = 0;
};
struct CudaFacts {
  bool usable = false;
  std::string reason;  ///< why not; empty if usable
  std::string driver;  ///< highest CUDA version of the driver, empty if there is none
  std::vector<CudaDevice> devices;
};
/// Initialises the CUDA runtime: up to a second.
CudaFacts cuda_facts();
/// Whether there is anything to initialise: a build with CUDA and a driver's device file. Takes no time.
bool cuda_is_possible();

}  // namespace ampcheck::tools
