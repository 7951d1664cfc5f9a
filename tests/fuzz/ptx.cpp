// SPDX-License-Identifier: Apache-2.0
// PTX: read, decoded and, where it has a kernel, run on a little memory.
#include "src/ptx/run.h"
#include "src/ptx/text.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

/// Kernels run a moment each; a launch that cannot be is refused.
void run_all(const ptx::Program& program) {
  std::vector<std::uint64_t> memory(64);
  for (const ptx::Routine& kernel : program.functions) {
    if (!kernel.entry || kernel.param_bytes > 4096) continue;
    ptx::Launch launch;
    launch.block = {40, 1, 1};
    launch.params.assign(kernel.param_bytes + 16, 0);
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(memory.data());
    for (std::size_t at = 0; at + 8 <= kernel.param_bytes; at += 8) std::memcpy(launch.params.data() + at, &address, 8);
    launch.regions = {{"memory", address, memory.size() * 8, false}};
    launch.cancelled = [] { return true; };
    try {
      ptx::run(program, kernel.name, launch);
    } catch (const ptx::PtxError&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto program = ptx::decode(ptx::parse(fuzz::text_of(data, size), "fuzz.ptx"));
    fuzz::require(program->text.version >= 30, "a text that is taken has a version");
    if (program->register_bytes < (1u << 20) && program->local_bytes < (1u << 12) &&
        program->globals.size() < (1u << 20))
      run_all(*program);
  } catch (const ptx::PtxError& error) {
    fuzz::require(std::string_view(error.what()).starts_with("[fuzz.ptx"), "a refusal names the file");
  }
  return 0;
}
