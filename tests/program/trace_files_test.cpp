// SPDX-License-Identifier: Apache-2.0
// The two files of a trace: what is read after any death of the run, of files that do not belong together, and of
// traces of the earlier schema.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "checks/train/trace_record.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using checks::train::Histogram;
using checks::train::TraceRecord;
using nlohmann::json;
using tools::parse_trace;
using tools::Trace;

class TraceFiles : public ::testing::Test {
 protected:
  /// Records a run; its files are index_ and statistics_.
  void record(const std::string& arguments) {
    const ProgramResult run = ampcheck("train --record " + path_ + " " + arguments);
    EXPECT_LE(run.exit_code, 1) << run.err;
    index_ = read_text(path_);
    statistics_ = read_text(path_ + ".bin");
  }
  void small_run() { record("--model tutorial --width 4 --batch 4 --steps 4"); }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/run.trace", index_, statistics_;
};

std::string summary(const Trace& trace) {
  return tools::trace_json(trace, tools::summed(trace)) + tools::trace_csv(trace) + tools::trace_html(trace);
}

/// The last step whose line ends within these bytes of an index; -1: none.
int last_step(std::string_view index) {
  int last = -1;
  for (std::size_t begin = 0, end; (end = index.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    const json j = json::parse(index.substr(begin, end - begin));
    if (j.contains("loss")) last = j["step"];
  }
  return last;
}

/// Tensors of the steps of `whole` up to that one.
std::size_t tensors_until(const Trace& whole, int step) {
  return static_cast<std::size_t>(
      std::count_if(whole.tensors.begin(), whole.tensors.end(), [&](const auto& t) { return t.step <= step; }));
}

/// A step's records are written before its lines: whenever the run dies, that many bytes of either are there.
TEST_F(TraceFiles, ARunThatDiesAtAnyByteLeavesItsWholeSteps) {
  small_run();
  const Trace whole = parse_trace(index_, statistics_, path_);
  ASSERT_EQ(whole.steps.size(), 4u);
  std::vector<std::pair<std::size_t, std::size_t>> parts = {
      {0, 0}};  // ends of the parts that were written, one after the other
  std::size_t named = 0;
  std::istringstream lines(index_);
  std::size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    at += line.size() + 1;
    const json j = json::parse(line);
    if (j.contains("at")) named = std::max(named, j["at"][0].get<std::size_t>() + j["at"][1].get<std::size_t>());
    if (j.contains("loss")) {
      parts.emplace_back(parts.back().first, named);
      parts.emplace_back(at, named);
    }
  }
  EXPECT_EQ(parts.back(), std::pair(index_.size(), statistics_.size()));
  int seen = 0;
  for (std::size_t part = 1; part < parts.size(); ++part) {
    const auto [index, statistics] = parts[part - 1];
    const std::size_t more_index = parts[part].first - index, more_statistics = parts[part].second - statistics,
                      more = more_index + more_statistics;
    for (std::size_t n = 0; n < more;
         n += n < 3 || n + 4 > more ? 1 : std::min<std::size_t>(stride(61), more - 3 - n)) {
      const std::string_view text = std::string_view(index_).substr(0, index + std::min(n, more_index));
      const std::string_view beside =
          std::string_view(statistics_).substr(0, statistics + std::min(n, more_statistics));
      if (text.find('\n') == std::string_view::npos) {
        EXPECT_THROW(parse_trace(text, beside, path_), Error);  // what was run nobody knows yet
        continue;
      }
      const Trace read = parse_trace(text, beside, path_);
      const int step = last_step(text);
      ASSERT_EQ(read.steps.size(), static_cast<std::size_t>(step + 1)) << text.size();
      ASSERT_EQ(read.tensors.size(), tensors_until(whole, step)) << text.size();
      EXPECT_FALSE(read.missing.has_value());
      EXPECT_EQ(read.torn, text.back() != '\n');
      ++seen;
    }
  }
  EXPECT_GT(seen, kSanitized ? 20 : 200);
}

TEST_F(TraceFiles, AKilledRunAndAFullDiskAreRead) {
  const ProgramResult killed =
      shell("$AMPCHECK train --model tutorial --width 8 --batch 4 --steps 1000000 --every 1 --record '" + path_ +
            "' >/dev/null & pid=$!\n"
            "for i in $(seq 600); do sleep 0.1; [ \"$(stat -c %s '" +
            path_ +
            "' 2>/dev/null || echo 0)\" -gt 200000 ] && break; done; kill -9 $pid; wait $pid\n"
            "$AMPCHECK trace '" +
            path_ + "'");
  EXPECT_EQ(killed.exit_code, 0) << killed.err;
  EXPECT_TRUE(contains(killed.out, " of 1,000,000 steps") || contains(killed.out, " of 1000000 steps"))
      << killed.out.substr(0, 300);
  for (const char* blocks :
       {"12", "40", "64"}) {  // of 1024 bytes, for each file: a write beyond fails as on a full disk
    const ProgramResult full =
        shell("trap '' XFSZ; ulimit -f " + std::string(blocks) +
              "; $AMPCHECK train --model tutorial --width 4 --batch 4 --steps 20 --record '" + path_ + "'");
    EXPECT_EQ(full.exit_code, 8) << full.err;
    EXPECT_TRUE(contains(full.err, "when writing")) << full.err;
    const Trace read = tools::read_trace(path_);
    EXPECT_FALSE(read.missing.has_value());
    EXPECT_LT(read.steps.size(), 20u);
    EXPECT_EQ(read.steps.empty(), std::string(blocks) == "12" && read.tensors.empty());
  }
}

TEST_F(TraceFiles, StatisticsThatAreCutOffCostTheirStepsAlone) {
  small_run();
  const Trace whole = parse_trace(index_, statistics_, path_);
  for (std::size_t size = 0; size < statistics_.size(); size += 97) {
    const Trace read = parse_trace(index_, std::string_view(statistics_).substr(0, size), path_);
    ASSERT_TRUE(read.missing.has_value()) << size;
    EXPECT_EQ(read.steps.size(), 4u) << "losses and scales are in the lines";
    EXPECT_TRUE(read.missing->cut_off);
    EXPECT_EQ(read.missing->last_step, 3);
    EXPECT_EQ(read.tensors.size(), tensors_until(whole, read.missing->first_step - 1));
    EXPECT_EQ(read.tensors.size() + static_cast<std::size_t>(read.missing->tensors), whole.tensors.size());
    EXPECT_LE(read.missing->from, static_cast<std::int64_t>(size));
    summary(read);
  }
  std::filesystem::resize_file(path_ + ".bin", statistics_.size() - 1);
  const ProgramResult shown = ampcheck("trace " + path_);
  EXPECT_EQ(shown.exit_code, 5) << "incomplete";
  EXPECT_TRUE(contains(shown.out, "4 of 4 steps") && contains(shown.out, "statistics of step 4 (") &&
              contains(shown.out, "are missing: '" + path_ + ".bin' ends at byte "))
      << shown.out;
  const ProgramResult summed = ampcheck("trace --json " + path_);
  EXPECT_EQ(summed.exit_code, 5);
  EXPECT_TRUE(contains(summed.err, "are missing")) << summed.err;
  EXPECT_EQ(json::parse(summed.out)["statistics_missing"]["first_step"], 3);
}

/// One byte, anywhere: the step to which it belongs is left out, and nothing is read wrong.
TEST_F(TraceFiles, ADamagedByteIsNoticed) {
  small_run();
  const Trace whole = parse_trace(index_, statistics_, path_);
  for (std::size_t at = 0; at < statistics_.size(); at += stride(13)) {
    std::string damaged = statistics_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    const Trace read = parse_trace(index_, damaged, path_);
    ASSERT_TRUE(read.missing.has_value()) << at;
    EXPECT_FALSE(read.missing->cut_off);
    EXPECT_EQ(read.missing->steps, 1);
    EXPECT_LE(read.missing->from, static_cast<std::int64_t>(at));
    EXPECT_GT(read.missing->from + 400, static_cast<std::int64_t>(at)) << "the record is named";
    std::set<int> steps;
    for (const auto& t : read.tensors) steps.insert(t.step);
    EXPECT_EQ(steps.size(), 3u);
  }
}

TEST_F(TraceFiles, AFileThatIsMissingOrAnotherTracesIsNamed) {
  small_run();
  const std::string other = folder_.path() + "/other.trace", beside = path_ + ".bin";
  ASSERT_LE(ampcheck("train --model tutorial --width 5 --batch 4 --steps 4 --record " + other).exit_code, 1);
  const auto refused = [&](const char* want) {
    const ProgramResult run = ampcheck("trace " + path_);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_TRUE(contains(run.err, want) && contains(run.err, beside)) << run.err;
  };
  std::filesystem::copy_file(other + ".bin", beside, std::filesystem::copy_options::overwrite_existing);
  refused("none of the records");
  std::filesystem::remove(beside);
  refused("got no '");
  std::filesystem::create_directory(beside);
  refused("no regular file");
  std::filesystem::remove(beside);
  std::ofstream(beside) << "mine\n";
  const ProgramResult over = ampcheck("train --steps 1 --record " + path_);
  EXPECT_EQ(over.exit_code, 2) << over.err;
  EXPECT_TRUE(contains(over.err, "which is there and holds none")) << over.err;
  EXPECT_EQ(read_text(beside), "mine\n");
  EXPECT_EQ(ampcheck("train --steps 1 --record " + other + " --save " + other + ".bin").exit_code, 2);
  EXPECT_EQ(ampcheck("trace " + other + " -o json:" + other + ".bin").exit_code, 2);
  EXPECT_EQ(ampcheck("train --steps 1 --record " + other).exit_code, 0) << "its own kind is replaced";
  EXPECT_EQ(ampcheck("trace " + other).exit_code, 0);
  EXPECT_EQ(ampcheck("train --ops 'nope*' --steps 1 --record " + other).exit_code, 0);
  EXPECT_TRUE(read_text(other + ".bin").empty()) << "no tensor, no statistics";
  EXPECT_EQ(ampcheck("trace " + other).exit_code, 0);
}

/// A line of ampcheck.trace/1: the index line with its statistics in it.
std::string earlier_line(const json& line, const TraceRecord& r) {
  json j = line;
  j.erase("at");
  const auto number = [](double v) {
    return std::isfinite(v) ? json(v) : json(std::isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
  };
  const auto maybe = [&](const std::optional<double>& v) { return v ? number(*v) : json(); };
  j.update({{"elements", r.elements},
            {"zero", r.zero},
            {"subnormal", r.subnormal},
            {"inf", r.inf},
            {"nan", r.nan},
            {"amax", r.amax},
            {"amin", r.amin},
            {"nonzero", r.nonzero},
            {"flushed", r.flushed},
            {"overflowed", r.overflowed},
            {"subnormal_loss", r.subnormal_loss},
            {"saturated", r.saturated},
            {"ulps", r.ulps},
            {"intended", r.intended},
            {"stagnant", r.stagnant}});
  j["exponents"] = {r.exponents.first, r.exponents.counts};
  j["local_error"] = maybe(r.local_error);
  j["carried_error"] = maybe(r.carried_error);
  j["bias"] = maybe(r.bias);
  j["bias_z"] = maybe(r.bias_z);
  const std::pair<const char*, std::optional<double>> values[] = {{"exact_rms", r.exact_rms},
                                                                  {"fp64_rms", r.fp64_rms},
                                                                  {"loss_error", r.loss_error},
                                                                  {"loss_reach", r.loss_reach},
                                                                  {"norm_error", r.norm_error}};
  for (const auto& [key, value] : values)
    if (value) j[key] = number(*value);
  if (r.cancelled) j["cancelled"] = {number(*r.cancelled), number(*r.most_cancelled)};
  if (!r.range_exponents.counts.empty()) {
    j["range"] = {r.range_least, r.range_most, r.range_exponents.first, r.range_exponents.counts};
    if (!r.range_powers.empty()) j["range"].push_back(r.range_powers);
  }
  if (r.decisions > 0)
    j["decisions"] = {r.decisions, r.flipped, r.undecided, number(r.least_margin), number(r.margins), number(r.radii)};
  for (const auto& [key, count] : {std::pair("copy_stagnant", r.copy_stagnant),
                                   {"second_moment_zero", r.second_moment_zero},
                                   {"epsilon_zero", r.epsilon_zero}})
    if (count > 0) j[key] = count;
  return j.dump();
}

std::string earlier_trace(const std::string& index, const std::string& statistics) {
  std::string out;
  std::istringstream lines(index);
  for (std::string line; std::getline(lines, line);) {
    json j = json::parse(line);
    if (j.contains("schema")) j["schema"] = "ampcheck.trace/1";
    out +=
        (j.contains("at")
             ? earlier_line(j, checks::train::read_record(std::string_view(statistics).substr(j["at"][0], j["at"][1])))
             : j.dump()) +
        "\n";
  }
  return out;
}

TEST_F(TraceFiles, ATraceOfTheEarlierSchemaSaysTheSame) {
  for (const char* arguments :
       {"--steps 3 --scaler none", "--steps 2 --ranks 2 --grad-penalty 0.1", "--steps 3 --lr 3000",
        "--steps 3 --optimizer adam --lr 1e-4 --weights master --moments fp16",
        "--model transformer --dtype bf16 --steps 1"}) {
    record(arguments);
    const std::string earlier = earlier_trace(index_, statistics_);
    EXPECT_EQ(summary(parse_trace(earlier, std::nullopt, path_)), summary(parse_trace(index_, statistics_, path_)))
        << arguments;
    std::size_t same = 0;  // lines without statistics, which are as they were
    std::istringstream lines(index_);
    for (std::string line; std::getline(lines, line);) same += json::parse(line).contains("at") ? 0 : line.size() + 1;
    EXPECT_LT(index_.size() + statistics_.size() - same, (earlier.size() - same) * 3 / 4) << arguments;
  }
}

/// As ampcheck 0.1 wrote it.
TEST_F(TraceFiles, AFileOfTheEarlierSchemaIsReadAndGoneOnIn) {
  const std::string earlier = tests::in_source("/tests/data/earlier.trace"),
                    arguments = "--model tutorial --width 2 --batch 2 ";
  const Trace read = tools::read_trace(earlier);
  std::istringstream lines(read_text(earlier));
  std::size_t tensors = 0;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    if (!j.contains("seq")) continue;
    const auto& t = read.tensors.at(tensors++);
    EXPECT_EQ(t.elements, j["elements"]);
    EXPECT_EQ(t.amax, j["amax"].get<double>());
    EXPECT_EQ(json(t.exponents), j["exponents"][1]);
    EXPECT_EQ(json(t.ulps), j["ulps"]);
    EXPECT_EQ(t.local_error.has_value(), !j["local_error"].is_null());
  }
  EXPECT_EQ(read.tensors.size(), tensors);
  EXPECT_GT(tensors, 20u);
  const std::string at = folder_.path() + "/";
  std::filesystem::copy_file(earlier, path_);
  ASSERT_LE(ampcheck("train --steps 1 --save " + at + "one.st " + arguments).exit_code, 1);
  record("--steps 3 --resume " + at + "one.st " + arguments);
  EXPECT_EQ(index_.find(read_text(earlier)), 0u);
  const Trace both = tools::read_trace(path_);
  EXPECT_EQ(both.steps.size(), 3u);
  EXPECT_EQ(both.tensors.size(), 3 * tensors);
  EXPECT_TRUE(contains(index_, "\n{\"schema\":\"ampcheck.trace/2\""));
}

/// A resumed run gives no byte of a lost record to another one.
TEST_F(TraceFiles, AResumedRunGoesOnBehindWhatItsLinesName) {
  const std::string at = folder_.path() + "/", arguments = "--model tutorial --width 4 --batch 4 ";
  record("--steps 2 --save " + at + "two.st " + arguments);
  const std::size_t size = statistics_.size();
  std::ofstream(path_ + ".bin", std::ios::app) << "what no line names";
  record("--steps 3 --resume " + at + "two.st " + arguments);
  EXPECT_FALSE(contains(statistics_, "what no line names"));
  EXPECT_EQ(tools::read_trace(path_).steps.size(), 3u);
  EXPECT_FALSE(tools::read_trace(path_).missing.has_value());
  std::filesystem::resize_file(path_ + ".bin", size - 100);
  record("--steps 3 --resume " + at + "two.st " + arguments);
  const Trace read = tools::read_trace(path_);
  ASSERT_TRUE(read.missing.has_value());
  EXPECT_EQ(read.missing->first_step, 1);
  EXPECT_EQ(read.missing->last_step, 1);
}

/// Whatever a field holds comes back; of every field one that is not zero.
TEST(TraceRecords, ComeBackAsTheyWere) {
  TraceRecord r{.step = 7, .seq = 3};
  std::int64_t next = 1;
  checks::train::each_record_field(r, [&]<class T>(T& field) {
    ++next;
    if constexpr (std::is_same_v<T, std::vector<std::int64_t>>)
      field = {0, next << next % 30, 1};
    else if constexpr (std::is_same_v<T, Histogram>)
      field = {static_cast<int>(-20 * next), {1, next, 0}};
    else
      field = static_cast<T>(next);
  });
  r.nonzero = checks::train::kMostElements;
  r.bias_z = INFINITY;
  r.cancelled = NAN;
  std::string bytes = "before";
  checks::train::append_record(bytes, r);
  const std::string record = bytes.substr(6);
  const TraceRecord back = checks::train::read_record(record);
  std::string again;
  checks::train::append_record(again, back);
  EXPECT_EQ(record, again);
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.nonzero, r.nonzero);
  EXPECT_EQ(back.exponents.first, r.exponents.first);
  EXPECT_EQ(back.ulps, r.ulps);
  EXPECT_EQ(back.epsilon_zero, next) << "the last one";
  EXPECT_EQ(take<std::uint64_t>(std::string_view(record).substr(checks::train::kRecordHeader + 8)),
            (std::uint64_t{1} << checks::train::record_fields().size()) - 1);
  for (std::size_t size = 0; size < record.size(); ++size)
    EXPECT_THROW(checks::train::read_record(std::string_view(record).substr(0, size)), Error) << size;
  EXPECT_THROW(checks::train::read_record(record + "x"), Error);
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u) << "the check value of CRC-32";
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
  EXPECT_EQ(crc32(""), 0u);
}

}  // namespace
}  // namespace ampcheck::testing
