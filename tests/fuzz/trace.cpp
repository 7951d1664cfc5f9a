// SPDX-License-Identifier: Apache-2.0
// Traces: lines, a zero byte, then the file of statistics; or the payload of a record alone, which gets its header, its
// checksum and its line. What is read is shown in all forms.
#include "checks/train/trace_record.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "tests/fuzz/fuzz.h"
#include "tools/trace/trace_file.h"

using namespace ampcheck;

namespace {

void read(std::string_view index, std::optional<std::string_view> statistics) {
  try {
    const tools::Trace trace = tools::parse_trace(index, statistics, "file");
    const std::vector<tools::TracedSum> sums = tools::summed(trace);
    fuzz::require(!tools::trace_json(trace, sums).empty() && !tools::trace_csv(trace).empty() &&
                      !tools::trace_html(trace).empty(),
                  "what is read is shown");
  } catch (const Error&) {
  }
}

std::string record_of(std::string_view payload) {
  std::string out(checks::train::kRecordMagic);
  put(out, checks::train::kRecordVersion);
  put(out, std::uint16_t{0});
  put(out, static_cast<std::uint32_t>(payload.size()));
  put(out, crc32(payload));
  return out.append(payload);
}

/// Twice in one step, of a gradient in 16 bits.
std::string index_of(const std::string& record, int seq) {
  std::string out =
      R"({"schema":"ampcheck.trace/2","model":"m","dtype":"fp16","scaler":"torch","seed":1,"steps":2,"local":true,"carried":true})"
      "\n";
  out +=
      R"({"step":0,"seq":)" + std::to_string(seq) +
      R"(,"phase":"backward","cast":false,"op":"linear_1","layer":"a","tensor":"dx","dtype":"fp16","from":"","source":-1,"scale":1,"role":"none","at":[0,)" +
      std::to_string(record.size()) + "," + std::to_string(checks::train::record_checksum(record)) + "]}\n";
  return out +
         R"({"step":0,"loss":1,"fp64_loss":null,"spread":null,"scale":1,"scale_after":1,"found_inf":false,"stepped":true,"stagnant_share":0})"
         "\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  if (bytes.starts_with("{")) {
    const std::size_t end = bytes.find('\0');
    read(bytes.substr(0, end), end == std::string_view::npos ? std::nullopt : std::optional(bytes.substr(end + 1)));
    return 0;
  }
  const std::string record = record_of(bytes);
  try {
    const checks::train::TraceRecord back = checks::train::read_record(record);
    std::string again;
    checks::train::append_record(again, back);
    const checks::train::TraceRecord twice = checks::train::read_record(again);
    fuzz::require(twice.step == back.step && twice.ulps == back.ulps && twice.exponents.counts == back.exponents.counts,
                  "a record comes back");
    if (back.step == 0 && back.seq >= 0) read(index_of(record, back.seq), record);
  } catch (const Error&) {
  }
  return 0;
}
