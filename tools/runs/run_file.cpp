// SPDX-License-Identifier: Apache-2.0
#include "tools/runs/run_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include "checks/run/run_case.h"
#include "src/digest.h"
#include "src/file_bytes.h"
#include "src/file_lock.h"
#include "src/parallel.h"
#include "tools/report/foreign_file.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/runs/base64.h"
#include "tools/workers/wire.h"

namespace ampcheck::tools {

namespace {

constexpr std::string_view kCrc = "{\"schema\":\"ampcheck.run/1\",\"crc\":\"",
                           kLength = "\",\"length\":", kRecord = ",\"record\":";

std::string line_of(const Json& record) {
  return run_file_line(record.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// A record, and the text of its last field where that is a result: long, so that it is not read as JSON.
struct Record {
  Json json;
  std::string_view result;
};

/// Takes the field "result" off the end of a record.
std::string_view take_result(std::string_view& record) {
  constexpr std::string_view kField = ",\"result\":\"", kEnd = "\"}";
  if (!record.ends_with(kEnd)) return {};
  const std::size_t quote = record.rfind('"', record.size() - kEnd.size() - 1);
  if (quote == record.npos || !record.substr(0, quote + 1).ends_with(kField)) return {};
  const std::string_view out = record.substr(quote + 1, record.size() - kEnd.size() - quote - 1);
  record = record.substr(0, quote + 1 - kField.size());
  return out;
}

/// The record of a line; nothing if the line was not written whole.
std::optional<Record> record_of(std::string_view line) {
  const auto take_head = [&](std::string_view head) {
    const bool there = line.starts_with(head);
    if (there) line.remove_prefix(head.size());
    return there;
  };
  if (!take_head(kCrc) || line.size() < 8) return std::nullopt;
  const std::string crc(line.substr(0, 8));
  line.remove_prefix(8);
  if (!take_head(kLength)) return std::nullopt;
  const std::size_t comma = line.find(',');
  const auto length = comma == std::string_view::npos ? std::nullopt : parse_whole(line.substr(0, comma));
  if (!length || *length < 0) return std::nullopt;
  line.remove_prefix(comma);
  if (!take_head(kRecord) || line.size() != static_cast<std::size_t>(*length) + 1 || line.back() != '}')
    return std::nullopt;
  line.remove_suffix(1);
  if (fmt::format("{:08x}", crc32(line)) != crc) return std::nullopt;
  Record out;
  out.result = take_result(line);
  const std::string head = std::string(line) + (out.result.data() != nullptr ? "}" : "");
  out.json = Json::parse(head, nullptr, false);
  if (!out.json.is_object()) return std::nullopt;
  return out;
}

std::string letters_of(const checks::How& how) {
  std::string out;
  if (how.sampled) out += 's';
  if (how.explain) out += 'e';
  if (how.power) out += 'p';
  if (how.again) out += 'a';
  if (how.values) out += 'v';
  if (how.first) out += 'f';
  return out;
}

std::string key_of(const std::string& plugin, const std::string& name) { return plugin + "\n" + name; }
std::string key_of(const std::string& plugin, const std::string& name, const std::string& how) {
  return key_of(plugin, name) + "\n" + how;
}

Json header_json(const RunHeader& header) {
  return {{"event", "begin"},          {"arguments", header.arguments}, {"cases", header.cases},
          {"version", header.version}, {"shard", header.shard},         {"shards", header.shards}};
}

[[noreturn]] void foreign(const std::string& path, const std::string& what) {
  throw ForeignFileError(fmt::format("['{}'] {}, want a run file of this check (check --run-file)", path, what));
}

RunHeader header_of(const std::string& path, const Json& record) {
  RunHeader out;
  try {
    out.arguments = record.at("arguments").get<std::vector<std::string>>();
    out.cases = record.at("cases").get<std::string>();
    out.version = record.at("version").get<std::string>();
    out.shard = record.at("shard").get<int>();
    out.shards = record.at("shards").get<int>();
  } catch (const Json::exception&) {
    foreign(path, "got a first line that is none of a run file");
  }
  return out;
}

/// A text of a record; empty where there is none, or anything else.
std::string text_at(const Json& record, const char* key) {
  return record.is_object() && record.contains(key) && record.at(key).is_string() ? record.at(key).get<std::string>()
                                                                                  : "";
}

/// A line, and what it says: read by several threads, taken in the order of the file.
struct ReadLine {
  std::string_view text;
  bool whole = true;                     ///< its end is there
  std::optional<Json> record = {};       ///< nothing: the line was not written whole
  std::string event = {};                ///< of the record
  std::optional<std::string> wire = {};  ///< of a case, where it is base64
  CaseResult result = {};                ///< of a case: its names alone
  std::exception_ptr error = {};         ///< why the result could not be read

  void read() {
    std::optional<Record> found = whole ? record_of(text) : std::nullopt;
    if (!found) return;
    record = std::move(found->json);
    event = text_at(*record, "event");
    if (event != "case") return;
    wire = from_base64(found->result);
    if (!wire) return;
    try {
      const CaseResult all = from_wire(*wire);
      result.name = all.name;
      result.plugin = all.plugin;
    } catch (const Error&) {
      error = std::current_exception();
    }
  }
};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

std::string RunHeader::difference(const RunHeader& other) const {
  if (version != other.version) return fmt::format("versions, {} and {}", version, other.version);
  if (arguments != other.arguments)
    return fmt::format("options, '{}' and '{}'", joined(arguments), joined(other.arguments));
  if (cases != other.cases) return "the selected cases";
  if (shards != other.shards) return fmt::format("the number of parts, {} and {}", shards, other.shards);
  return "";
}

std::string digest_of_cases(const Selection& selection) {
  std::string names;
  for (const checks::Case& item : selection.cases) names += item.call.str(item.op->signature) + "\n";
  return digest_of(names).str();
}

int shard_of(std::string_view case_name, int shards) {
  return static_cast<int>(digest_of(case_name).low % static_cast<std::uint64_t>(shards)) + 1;
}

std::optional<CaseResult> KeptResults::find(const checks::OpDef& op, const std::string& case_name,
                                            const checks::How& how) const {
  const std::lock_guard lock(mutex_);
  const auto at = kept_.find(key_of(op.plugin, case_name, letters_of(how)));
  if (at == kept_.end()) return std::nullopt;
  return from_wire(at->second);
}

bool KeptResults::has(const std::string& plugin, const std::string& case_name) const {
  const std::lock_guard lock(mutex_);
  return cases_.contains(key_of(plugin, case_name));
}

void KeptResults::add(const CaseResult& result, const checks::How& how, std::string wire) {
  const std::lock_guard lock(mutex_);
  kept_[key_of(result.plugin, result.name, letters_of(how))] = std::move(wire);
  ++cases_[key_of(result.plugin, result.name)];
}

std::string run_file_line(std::string_view record) {
  return fmt::format("{}{:08x}{}{}{}{}}}\n", kCrc, crc32(record), kLength, record.size(), kRecord, record);
}

RunHeader read_run_file(const std::string& path, KeptResults& kept, std::size_t& torn) {
  return parse_run_file(read_bytes(path, "run file"), path, kept, torn);
}

RunHeader parse_run_file(std::string_view text, const std::string& path, KeptResults& kept, std::size_t& torn) {
  std::vector<ReadLine> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end != at) lines.push_back({text.substr(at, end == text.npos ? end : end - at), end != text.npos});
    at = end == text.npos ? text.size() : end + 1;
  }
  constexpr std::int64_t kGrain = 16;
  parallel_for(static_cast<std::int64_t>(lines.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) lines[i].read();
  });
  std::optional<RunHeader> header;
  for (ReadLine& line : lines) {
    if (!line.record) {
      if (!header) foreign(path, "got a first line that is none of a run file");
      ++torn;
      continue;
    }
    if (line.event == "begin") {
      const RunHeader own = header_of(path, *line.record);
      if (header && !own.difference(*header).empty())
        foreign(path, "got two runs that differ in " + own.difference(*header));
      header = own;
    } else if (line.event == "case" && header) {
      if (!line.wire) foreign(path, "got a result that is no base64");
      if (line.error) std::rethrow_exception(line.error);
      const std::string how = text_at(*line.record, "how");
      const checks::How as{how.find('s') != how.npos, how.find('e') != how.npos, how.find('p') != how.npos,
                           how.find('a') != how.npos, how.find('v') != how.npos, how.find('f') != how.npos};
      kept.add(line.result, as, std::move(*line.wire));
    }
  }
  if (!header) foreign(path, "got an empty file");
  return *header;
}

RunFile::RunFile(const std::string& path, const RunHeader& header) : path_(path) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  const bool there = !none && size > 0;
  if (there) {
    std::size_t torn = 0;
    const RunHeader before = read_run_file(path, kept_, torn);
    if (const std::string other = before.difference(header); !other.empty())
      foreign(path, "got a run that differs from this one in " + other);
    if (before.shard != header.shard)
      foreign(path, fmt::format("got part {}, this is part {}", before.shard, header.shard));
    found_ = kept_.size();
  }
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) throw WriteError(fmt::format("[--run-file] cannot open '{}': {}", path, std::strerror(errno)));
  if (!lock_file(file_)) {
    close(file_);
    throw WriteError(
        fmt::format("[--run-file] got '{}', which another run is writing, want a file of its own for each", path));
  }
  if (there) write("\n");  // behind a line that was torn
  write(line_of(header_json(header)));
  if (error_ == 0) return;
  if (!there && ftruncate(file_, 0) != 0) error_.store(errno);  // half of a first line is no run file
  close(file_);
  fail();
}

RunFile::~RunFile() { close(file_); }

void RunFile::add(const CaseResult& result, const checks::How& how) {
  if (result.verdict == Verdict::skipped || result.note == checks::kNotExplained) return;  // it may do better next time
  const std::string wire = wire_text(result);
  kept_.add(result, how, wire);
  Json record = {{"event", "case"},
                 {"case", result.name},
                 {"how", letters_of(how)},
                 {"verdict", name(result.verdict)},
                 {"code", name(result.code)}};
  if (!result.plugin.empty()) record["plugin"] = result.plugin;
  record["result"] = to_base64(wire);  // the last field: take_result
  write(line_of(record));
}

void RunFile::end(bool lasts) {
  write(line_of({{"event", "end"}, {"results", kept_.size()}}));
  if (lasts && fsync(file_) != 0 && errno != EINVAL && errno != EROFS) error_.store(errno);
  if (error_ != 0) fail();
}

void RunFile::fail() const {
  throw WriteError(fmt::format("[--run-file] cannot write '{}': {}", path_, std::strerror(error_)));
}

/// One write: lines of several threads do not mix, and the page cache keeps them when this process is killed.
void RunFile::write(const std::string& line) {
  const std::string text = torn_.exchange(false) ? "\n" + line : line;
  ssize_t put = 0;
  do put = ::write(file_, text.data(), text.size());
  while (put < 0 && errno == EINTR);
  if (put == static_cast<ssize_t>(text.size())) return;
  error_.store(put < 0 ? errno : ENOSPC);
  torn_.store(true);
}

}  // namespace ampcheck::tools
