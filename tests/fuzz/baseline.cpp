// SPDX-License-Identifier: Apache-2.0
// Baselines of gate: what is read is written as it was, and reviewed beside a state like it.
#include "tools/gate/baseline.h"

#include "tests/fuzz/fuzz.h"
#include "tools/gate/gate_report.h"
#include "tools/report/foreign_file.h"

using namespace ampcheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string text(fuzz::text_of(data, size));
    const tools::Baseline read = tools::baseline_from(tools::parse_json(text, "fuzz.json"), "fuzz.json");
    const std::string written = tools::diffable_text(tools::json_of(read));
    const tools::Baseline again = tools::baseline_from(tools::parse_json(written, "fuzz.json"), "fuzz.json");
    fuzz::require(tools::diffable_text(tools::json_of(again)) == written, "a baseline comes back");
    tools::Review review{.op = read.op, .accepted = true, .was = read, .now = again};
    for (auto& [name, stored] : review.now.cases) {  // another kernel's: fewer errors, other bits
      for (auto& [arch, digests] : stored.bits)
        for (auto& [tensor, digest] : digests) digest += "0";
      for (auto& [tensor, profile] : stored.tensors) profile.rms /= 2;
    }
    fuzz::require(!tools::review_text(review, {}).empty() && !tools::review_markdown({review}, "baselines").empty() &&
                      !tools::review_json({review}).empty(),
                  "what is read is shown");
    tools::errors_beyond_chance(review);
  } catch (const tools::ForeignFileError& error) {
    fuzz::require(std::string_view(error.what()).find("fuzz.json") != std::string_view::npos,
                  "a refusal names the file");
  }
  return 0;
}
