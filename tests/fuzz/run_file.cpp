// SPDX-License-Identifier: Apache-2.0
// Run files: lines as they stand; or, where the first byte is no '{', records that get their lengths and checksums: 'w'
// with the bytes of a result as workers write them, to the end of the input; else JSON, a line each. What is read is
// reported in every form.
#include "tools/runs/run_file.h"

#include "src/error.h"
#include "tests/fuzz/fuzz.h"
#include "tools/choose/report_formats.h"
#include "tools/report/json.h"
#include "tools/report/reports.h"
#include "tools/runs/base64.h"
#include "tools/workers/wire.h"

using namespace ampcheck;

namespace {

constexpr std::string_view kBegin =
    R"({"event":"begin","arguments":["relu"],"cases":"0","version":"0","shard":1,"shards":1})";

void show(const CaseResult& result) {
  Report report;
  report.cases.push_back(result);
  const tools::RunFacts facts{.build = tools::build_facts(), .machine = {}, .planned = 1};
  fuzz::require(!tools::console_report(report, facts, {}).empty() && !tools::json_report(report, facts).empty() &&
                    !tools::junit_report(report, facts).empty() && !tools::html_report(report, facts).empty(),
                "what is read is shown");
}

void read(const std::string& text) {
  tools::KeptResults kept;
  std::size_t torn = 0;
  try {
    tools::parse_run_file(text, "fuzz.run", kept, torn);
  } catch (const Error& error) {
    fuzz::require(error.what()[0] == '[', "a refusal says where");
  }
}

/// A result that is read is written as it was.
void read_result(std::string_view wire) {
  try {
    const CaseResult result = tools::from_wire(wire);
    const std::string again = tools::wire_text(result);
    fuzz::require(tools::wire_text(tools::from_wire(again)) == again, "a result comes back");
    show(result);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  if (bytes.starts_with("{")) {
    read(std::string(bytes));
    return 0;
  }
  std::string file = tools::run_file_line(kBegin);
  if (bytes.starts_with("w")) {
    const std::string_view wire = bytes.substr(1);
    read_result(wire);
    read(file + tools::run_file_line(R"({"event":"case","how":"e","result":")" + tools::to_base64(wire) + "\"}"));
    return 0;
  }
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    file += tools::run_file_line(bytes.substr(at, end - at));
    at = end + 1;
  }
  read(file);
  return 0;
}
