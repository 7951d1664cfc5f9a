// SPDX-License-Identifier: Apache-2.0
// Descriptions of libraries on their way between processes: what is read is what was written, and bytes that are none
// are refused.
#include "tools/workers/description.h"

#include <gtest/gtest.h>

#include "checks/run/compare_builds.h"
#include "src/error.h"
#include "tests/support/paths.h"

namespace ampcheck::tools {
namespace {

using checks::OpDef;
using checks::Plugin;

std::string names(const std::vector<OpDef>& ops) {
  std::string out;
  for (const OpDef& op : ops) {
    out += op.signature.name + "(";
    for (const reference::Form& form : op.forms) out += form.name + ";";
    out += ") ";
  }
  return out;
}

TEST(Descriptions, AreReadAsTheyWereWritten) {
  std::size_t extensions = 0;
  for (const char* const file : {"my_rms_norm",
                                 "add_layer_norm",
                                 "rope",
                                 "linear_cross_entropy",
                                 "grouped_rms_norm",
                                 "dequant_matmul",
                                 "choices",
                                 "log_sigmoid",
                                 "fp8",
                                 "dropout",
                                 "one_refused",
                                 "hostile",
                                 "centered_rows",
                                 "no_formula",
                                 "core_matmul",
                                 "in_place",
                                 "gated_sum_bad_variant",
                                 "tangents",
                                 "fp64",
                                 "backward_tensors"}) {
    const std::string path = tests::in_build(std::string("/custom_ops/") + file + ".so");
    const Plugin& plugin = checks::load_plugin(path);
    const std::string bytes = description_bytes(plugin);
    const Description read(bytes);
    for (int i = 0; i < read.plugin()->op_count; ++i)
      extensions += static_cast<std::size_t>(read.plugin()->ops[i].extension_count);
    const Plugin again{.path = path, .ops = checks::ops_of(read.plugin(), file), .description = read.plugin()};
    EXPECT_TRUE(description_bytes(again) == bytes) << path;
    ASSERT_EQ(names(again.ops), names(plugin.ops)) << path;
    for (std::size_t i = 0; i < again.ops.size(); ++i) {
      EXPECT_EQ(checks::signature_difference(again.ops[i].signature, plugin.ops[i].signature), "") << path;
      EXPECT_EQ(again.ops[i].kernel.jvp == nullptr, plugin.ops[i].kernel.jvp == nullptr) << path;
      EXPECT_EQ(again.ops[i].signature.kinks.size(), plugin.ops[i].signature.kinks.size()) << path;
    }
  }
  EXPECT_GT(extensions, 0u) << "else none was read";
}

TEST(Descriptions, ChangedBytesAreRefusedOrRead) {
  const std::string bytes = description_bytes(checks::load_plugin(tests::in_build("/custom_ops/one_refused.so")));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(Description(bytes.substr(0, size)), Error) << size;
  EXPECT_THROW(Description(bytes + "x"), Error);
  for (std::size_t at = 0; at < bytes.size(); ++at)
    for (const char change : {'\x01', '\x7f', '\xff'}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      try {
        const Description read(changed);
        EXPECT_LE(read.plugin()->op_count, 10'000);
      } catch (const Error&) {
      }
    }
}

}  // namespace
}  // namespace ampcheck::tools
