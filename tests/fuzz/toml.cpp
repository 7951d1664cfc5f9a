// SPDX-License-Identifier: Apache-2.0
// TOML files that describe a launcher: parsed, read and recorded; nothing of a library is opened.
#include "checks/doors/launcher_toml.h"
#include "checks/doors/plugin.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const checks::TomlOp read = checks::op_of_toml(std::string(fuzz::text_of(data, size)), "fuzz.toml");
    fuzz::require(!read.op.signature.name.empty() && !read.op.signature.outputs.empty(),
                  "an op that is taken has a name and outputs");
    fuzz::require(static_cast<bool>(read.op.kernel.forward) && static_cast<bool>(read.resolve),
                  "an op that is taken can be called and resolved");
  } catch (const checks::PluginError& error) {
    fuzz::require(std::string_view(error.what()).starts_with("[fuzz.toml"), "a refusal names the file");
  }
  return 0;
}
