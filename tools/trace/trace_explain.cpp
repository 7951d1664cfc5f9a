// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/trace_explain.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "checks/train/trace.h"
#include "checks/train/trace_fields.h"
#include "checks/train/trace_record.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

constexpr const char* kHow =
    R"(A trace is what `ampcheck train --record run.trace` writes, two files, to which each step is appended when it ends: run.trace, the index, a text
of JSON lines, one object to a line, and run.trace.bin, the statistics of the tensors as binary records, each named by a line. `ampcheck trace
run.trace` makes tables, CSV, JSON or a page of them; this is for programs of your own.

A run may die at any moment. A record is written before the line that names it. A last line without a newline is torn: leave it out, and with
it all lines after the last one of kind "step"; records that no line names belong to these. After a power cut records may be missing although
lines name them: each has its checksum in its line. Nothing is changed once it is written; a run that is resumed cuts off what is behind its
checkpoint and goes on in the same files. After a fault of a run that is looked at in some of its steps, the steps before it follow whole, out
of order: they have a line "step" a second time. Steps count from 0 here, in JSON and in CSV; what train and trace print as text counts from 1.

  import json, struct, zlib
  FIELDS = "@FIELDS@"
  def record(data, line):
      magic, version, _, size, crc = struct.unpack_from("<4sHHII", data)
      payload = data[16:]
      assert magic == b"ACTR" and version == 1 and size == len(payload) and crc == zlib.crc32(payload)
      step, seq, mask = struct.unpack_from("<iiQ", payload)
      assert (step, seq) == (line["step"], line["seq"])
      at, out = 16, {}
      def take(code):
          nonlocal at
          value, = struct.unpack_from("<" + code, payload, at)
          at += struct.calcsize(code)
          return value
      def counts():
          width, size = take("B"), take("H")
          return [take({1: "B", 2: "H", 4: "I", 8: "Q"}[width]) for _ in range(size)]
      for bit, field in enumerate(FIELDS.split()):
          key, kind = field.split(":")
          if mask >> bit & 1:
              out[key] = take("q") if kind == "n" else take("d") if kind == "x" else counts() if kind == "c" else (take("h"), counts())
      return out
  steps, tensors, new = {}, [], []
  for line in open("run.trace"):
      if not line.endswith("\n"):
          break                                  # torn
      j = json.loads(line)
      if "seq" in j:
          new.append(j)                          # tensor
      elif "loss" in j:
          steps[j["step"]] = j                   # step: what is new is whole now
          tensors += new
          new = []
  tensors.sort(key=lambda t: (t["step"], t["seq"]))
  with open("run.trace.bin", "rb") as file:
      for t in tensors:
          offset, length, _ = t["at"]
          file.seek(offset)
          t.update(record(file.read(length), t))

Numbers in lines are decimals that read back to the same fp64. What is not finite is the text "inf", "-inf" or "nan"; what does not exist is
null. Fields may be added; leave out what you do not know. Fields with * stand only where they say something. Traces of the schema
ampcheck.trace/1 have no second file: their lines have the fields of the record, too.
)";

constexpr const char* kRecordHow = R"(
Record, in run.trace.bin. All numbers are little-endian.
  bytes 0-3 "ACTR", 4-5 version (1), 6-7 zero, 8-11 length of the payload, 12-15 CRC-32 of the payload (zlib's); then the payload:
  bytes 0-3 step, 4-7 seq (int32), as in the line; 8-15 which fields there are: bit 0 for the first below, ...; then these, in their order:
    count      int64; absent: 0
    value      fp64; absent: 0, or as the field says
    counts     uint8 width (1, 2, 4 or 8), uint16 how many, then as many unsigned integers of that width; absent: none
    histogram  int16 e, then as counts: magnitudes in [2^e, 2^(e+1)), in the next, ...; absent: none
)";

const char* type_name(RecordType type) {
  switch (type) {
    case RecordType::count: return "count";
    case RecordType::value: return "value";
    case RecordType::counts: return "counts";
    case RecordType::histogram: return "histogram";
  }
  return "";
}

/// "elements:n zero:n ... amax:x ...", in lines of the script.
std::string fields_for_script() {
  std::string out, line;
  for (const RecordField& f : record_fields()) {
    const std::string word = fmt::format("{}:{}", f.key,
                                         f.type == RecordType::count    ? 'n'
                                         : f.type == RecordType::value  ? 'x'
                                         : f.type == RecordType::counts ? 'c'
                                                                        : 'h');
    if (line.size() + word.size() > 110) {
      out += line + " \" \\\n      \"";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

std::string how_text() {
  std::string out = kHow;
  const std::string_view mark = "@FIELDS@";
  return out.replace(out.find(mark), mark.size(), fields_for_script());
}

constexpr const char* kKindBy[] = {"schema", "seq", "moved_late", "parameter",
                                   "loss"};  // the field that lines of a kind alone have

std::string_view first_word_of(const TraceLine& line) { return kKindBy[&line - trace_lines().data()]; }

/// What a record holds, by its fields' names.
Json record_json(const TraceRecord& record) {
  Json out = Json::object();
  const RecordField* field = record_fields().data();
  each_record_field(record, [&]<class T>(const T& value) {
    const char* const key = field++->key;
    if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) {
      if (value != 0) out[key] = value;
    } else if constexpr (std::is_same_v<T, Histogram>) {
      if (!value.counts.empty()) out[key] = {value.first, value.counts};
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      if (value) out[key] = *value;
    } else if (!value.empty()) {
      out[key] = value;
    }
  });
  return out;
}

struct Examples {
  std::vector<std::string> lines;  ///< as trace_lines()
  Json record;                     ///< that the tensor's line names
};

/// A tensor's line has its record in it, where no file is written: it gets its place in one.
std::string line_with_place(Json j, const std::string& record) {
  j.erase("record");
  j["at"] = {0, record.size(), record_checksum(record)};
  return j.dump();
}

/// The richest line of each kind, of one step of a small net; of a tensor that with the longest record.
Examples examples() {
  TrainOptions options;
  options.net = {.model = "tutorial", .batch = 4, .width = 4};
  options.shadows = {.local = true, .carried = true};
  options.watched = true;
  options.gradient_errors = 1;
  Trainer trainer(options);
  trainer.prepare();
  TraceWriter trace(trainer, 1);
  trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                              const TensorStats& stats) { trace.tensor(e, key, tally, role, stats); });
  trace.moved_late({.what = "data", .after = "linear_3", .launched = 9, .bytes = 64});  // as of this net on a device
  trace.step(trainer.step());
  Examples out{.lines = std::vector<std::string>(trace_lines().size()), .record = {}};
  std::vector<std::size_t> fields(out.lines.size(), 0);
  std::string_view rest = trace.text();
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    const std::string line(rest.substr(0, end));
    const Json j = Json::parse(line);
    for (const TraceLine& kind : trace_lines()) {
      const auto i = static_cast<std::size_t>(&kind - trace_lines().data());
      const std::string record = j.contains("record") ? bytes_of_hex(j.at("record").get<std::string>()) : "";
      const std::size_t has = j.size() + record.size();
      if (!j.contains(first_word_of(kind)) || has <= fields[i]) continue;
      fields[i] = has;
      out.lines[i] = record.empty() ? line : line_with_place(j, record);
      if (!record.empty()) out.record = record_json(read_record(record));
    }
  }
  return out;
}

/// `marked`: stands only where it says something.
std::string field_text(const char* key, bool marked, const std::string& unit, const char* meaning) {
  std::string out = fmt::format("  {:<15} {:<11} ", marked ? std::string(key) + "*" : key, unit);
  for (const char* c = meaning; *c != '\0'; ++c) out += *c == '\n' ? "\n" + std::string(30, ' ') : std::string(1, *c);
  return out + "\n";
}

}  // namespace

std::string trace_format_text() {
  std::string out = how_text();
  for (const TraceLine& line : trace_lines()) {
    out += fmt::format("\nLine \"{}\", which alone has \"{}\". {}.\n", line.kind, first_word_of(line), line.when);
    for (const TraceField& f : line.fields) out += field_text(f.key, !f.always, f.unit, f.meaning);
  }
  out += kRecordHow;
  for (const RecordField& f : record_fields()) out += field_text(f.key, false, type_name(f.type), f.meaning);
  out += "\nA line of each kind, recorded just now (\"move\" as a device would have it):\n";
  const Examples shown = examples();
  for (const std::string& line : shown.lines) out += line + "\n";
  return out + "\nThe record of that tensor, its fields by name:\n" + shown.record.dump() + "\n";
}

Json trace_format_json() {
  Json out = {{"schema", "ampcheck.trace_format/1"}, {"text", how_text()}, {"lines", Json::array()}};
  const Examples shown = examples();
  for (const TraceLine& line : trace_lines()) {
    Json entry = {{"kind", line.kind}, {"has", first_word_of(line)}, {"when", line.when}, {"fields", Json::array()}};
    for (const TraceField& f : line.fields)
      entry["fields"].push_back({{"key", f.key}, {"unit", f.unit}, {"meaning", f.meaning}, {"always", f.always}});
    entry["example"] = Json::parse(shown.lines[static_cast<std::size_t>(&line - trace_lines().data())]);
    out["lines"].push_back(std::move(entry));
  }
  out["record"] = {
      {"text", kRecordHow}, {"version", kRecordVersion}, {"fields", Json::array()}, {"example", shown.record}};
  for (const RecordField& f : record_fields())
    out["record"]["fields"].push_back(
        {{"key", f.key}, {"type", type_name(f.type)}, {"unit", f.unit}, {"meaning", f.meaning}});
  return out;
}

}  // namespace ampcheck::tools
