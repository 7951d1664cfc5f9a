// SPDX-License-Identifier: Apache-2.0
// gpu_probe: what tools/gpu_check asks of a GPU besides the tests. Exit code 1 where the GPU does otherwise than
// expected.
#include "tools/gpu/probe.h"

#include <exception>
#include <fstream>
#include <string_view>

namespace {

constexpr const char* kUsage =
    "gpu_probe tensor-cores CAPTURES JSON   captured instructions again, the alignment exponent's floor, special "
    "values\n"
    "gpu_probe bandwidth JSON               unscaling, fused Adam and statistics against a copy\n"
    "gpu_probe products JSON                times of cuBLAS products\n";

}  // namespace

int main(int argc, char** argv) {
  using namespace ampcheck::gpu;
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const bool known =
      (verb == "tensor-cores" && argc == 4) || ((verb == "bandwidth" || verb == "products") && argc == 3);
  if (!known) {
    std::fprintf(stderr, "gpu_probe: got '%s' and %d arguments, want\n%s", argc > 1 ? argv[1] : "", argc - 1, kUsage);
    return 2;
  }
  try {
    bool right = true;
    const Json out = verb == "tensor-cores" ? tensor_cores(argv[2], right)
                     : verb == "bandwidth"  ? bandwidth()
                                            : products();
    std::ofstream file(argv[argc - 1]);
    file << out.dump(1) << '\n';
    file.close();
    if (!file) {
      std::fprintf(stderr, "gpu_probe: cannot write %s\n", argv[argc - 1]);
      return 2;
    }
    return right ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_probe: %s\n", e.what());
    return 1;
  }
}
