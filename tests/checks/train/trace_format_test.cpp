// SPDX-License-Identifier: Apache-2.0
// `ampcheck explain trace` describes what is written: every key of real traces, and no other.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "checks/models/layers.h"
#include "checks/train/trace.h"
#include "checks/train/trace_record.h"
#include "src/file_bytes.h"
#include "tests/support/fake_device.h"
#include "tests/support/run_program.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

/// Which fields a record has, as its mask says.
void add_fields(const json& format, const std::string& record, std::set<std::string>& seen) {
  const auto mask = take<std::uint64_t>(std::string_view(record).substr(checks::train::kRecordHeader + 8));
  const json& fields = format["record"]["fields"];
  for (std::size_t bit = 0; bit < fields.size(); ++bit)
    if ((mask >> bit & 1) != 0) seen.insert(fields[bit]["key"].get<std::string>());
  EXPECT_EQ(mask >> fields.size(), 0u) << "a field that nobody described";
}

/// What a trace's lines have and the description does not, or the other way round; adds the keys seen, by kind. `path`:
/// of the trace, whose records are looked at, too.
std::string differences(const json& format, const std::string& trace,
                        std::map<std::string, std::set<std::string>>& seen, const std::string& path = "") {
  std::string out;
  const std::string statistics = path.empty() ? "" : read_text(checks::train::statistics_path(path));
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    if (j.contains("record")) add_fields(format, tools::bytes_of_hex(j["record"]), seen["record"]);
    if (j.contains("at") && !statistics.empty())
      add_fields(format, statistics.substr(j["at"][0], j["at"][1]), seen["record"]);
    int kinds = 0;
    for (const json& kind : format["lines"]) {
      if (!j.contains(kind["has"].get<std::string>())) continue;
      ++kinds;
      std::set<std::string> known;
      for (const json& field : kind["fields"]) {
        known.insert(field["key"].get<std::string>());
        if (field["always"].get<bool>() && !j.contains(field["key"].get<std::string>()))
          out += "no " + field["key"].get<std::string>() + "; ";
      }
      for (const auto& [key, value] : j.items()) {
        seen[kind["kind"]].insert(key);
        if (!known.contains(key)) out += kind["kind"].get<std::string>() + " has " + key + "; ";
      }
    }
    if (kinds != 1) out += std::to_string(kinds) + " kinds of " + line;
  }
  return out;
}

/// Of one step on a device whose net puts its target in after its ops, or before them.
std::string trace_on_a_device(bool late) {
  using namespace checks::train;
  namespace models = checks::models;
  TrainOptions options;
  options.own_net = Net{
      .name = "late", .forward = [late](models::Tape& t, std::int64_t) {
        const auto target = [&] { return t.data({4, 2}, std::vector<double>(8, 0.5)); };
        const models::Var x = t.data({4, 8}, std::vector<double>(32, 0.25)), before = late ? models::Var() : target();
        const models::Var y = models::linear(t, "layer", x, 2);
        t.add_loss(t.call("mse_loss", {{"x", y}, {"target", late ? target() : before}}), 1);
      }};
  options.watched = true;
  options.stream = [] { return std::make_unique<tests::FakeStream>(); };
  Trainer trainer(options);
  trainer.prepare();
  TraceWriter trace(trainer, 1);
  trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                              const TensorStats& stats) { trace.tensor(e, key, tally, role, stats); });
  trainer.watch()->listen_to_moves([&](const LateMove& move) { trace.moved_late(move); });
  trace.step(trainer.step());
  return std::string(trace.text());
}

/// A subnormal number in the place of a normal one, which no right op writes.
std::string trace_of_a_lost_number() {
  using namespace checks::train;
  TrainOptions options;
  options.net = {.model = "tutorial", .batch = 4, .width = 4};
  Trainer trainer(options);
  TraceWriter trace(trainer, 1);
  Tensor got(Dtype::fp16, {1});
  *static_cast<std::uint16_t*>(got.data()) = 1;
  const std::vector<double> exact = {1};
  Event e;
  e.op = "relu_1";
  e.tensor = "y";
  e.got = got.view();
  e.exact = view_of(exact, {1});
  trace.tensor(e, {Phase::forward, false, Dtype::fp16, "relu_1", "", "y"}, {}, FaultRole::none,
               TensorStats(Dtype::fp16));
  return std::string(trace.text());
}

TEST(TraceFormat, WhatTheHostPutsIntoADevicesMemoryLateIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run.trace";
  const auto shown = [&](bool late) {
    std::ofstream(path) << trace_on_a_device(late);
    return ampcheck("trace " + path).out;
  };
  const std::string late = shown(true);
  EXPECT_TRUE(contains(late, "Moved to the device late") &&
              contains(late, "after linear_1     32 B of data put in by the host after "))
      << late;
  const json listed = json::parse(ampcheck("trace --json " + path).out)["moved_late"];
  ASSERT_EQ(listed.size(), 1u) << listed;
  EXPECT_EQ(listed[0]["what"], "data");
  EXPECT_GT(listed[0]["launched"].get<int>(), 0);
  EXPECT_FALSE(contains(shown(false), "Moved to the device late")) << "all data before the first op";
}

TEST(TraceFormat, EveryFieldThatIsWrittenIsDescribedAndNoOther) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run.trace";
  const json format = json::parse(ampcheck("explain trace --json").out);
  EXPECT_EQ(format["schema"], "ampcheck.trace_format/1");
  std::map<std::string, std::set<std::string>> seen;
  for (const char* arguments :
       {"--steps 2", "--steps 2 --ranks 2 --shadow carried --dtype bf16", "--steps 1 --grad-penalty 0.1",
        "--steps 2 --shadow off --clip-norm 1", "--steps 3 --lr 3000 --shadow local",
        "--steps 2 --optimizer adam --lr 1e-4 --weights master --moments fp16",
        "--steps 1 --optimizer adam --weights low --scaler none", "--steps 2 --scaler none --loss-weight 1e-4",
        "--steps 15 --dtype bf16 --lr 0.5", "--steps 1 --dtype fp8",
        "--steps 1 --loss cross_entropy,cross_entropy*0.5 --optimizer sgd,clip_norm=0.1@layer2"}) {
    EXPECT_LE(ampcheck("train --record " + path + " " + arguments).exit_code, 1);
    EXPECT_EQ(differences(format, read_text(path), seen, path), "") << arguments;
  }
  EXPECT_EQ(differences(format, trace_on_a_device(true), seen), "");
  EXPECT_EQ(differences(format, trace_of_a_lost_number(), seen), "");
  const std::string text = ampcheck("explain trace").out;
  for (const json& kind : format["lines"]) {
    std::set<std::string> described;
    for (const json& field : kind["fields"]) {
      const std::string key = field["key"];
      EXPECT_TRUE(described.insert(key).second) << key << " twice";
      EXPECT_TRUE(contains(text, "\n  " + key + (field["always"].get<bool>() ? " " : "* "))) << key;
    }
    EXPECT_EQ(described, seen[kind["kind"]]) << "no run has it";
  }
  std::set<std::string> described;
  for (const json& field : format["record"]["fields"]) {
    EXPECT_TRUE(described.insert(field["key"]).second) << field;
    EXPECT_TRUE(contains(text, "\n  " + field["key"].get<std::string>() + " ")) << field;
  }
  EXPECT_EQ(described, seen["record"]) << "no run has it";
  const std::string before = "as a device would have it):\n", tail = text.substr(text.find(before) + before.size()),
                    examples = tail.substr(0, tail.find("\n\n") + 1);
  std::istringstream shown(examples);
  std::string example;
  for (const json& kind : format["lines"]) {
    ASSERT_TRUE(std::getline(shown, example));
    EXPECT_EQ(json::parse(example), kind["example"]);
  }
  EXPECT_EQ(differences(format, examples, seen), "");
  // Planted: a field that nobody described, and one that is left out.
  json line = format["lines"][1]["example"];
  line["novelty"] = 1;
  EXPECT_EQ(differences(format, line.dump() + "\n", seen), "tensor has novelty; ");
  line.erase("novelty");
  line.erase("scale");
  EXPECT_EQ(differences(format, line.dump() + "\n", seen), "no scale; ");
}

TEST(TraceFormat, TheReaderInTheTextReadsAWholeAndATornTrace) {
  if (shell("command -v python3").exit_code != 0) GTEST_SKIP() << "no python3 on PATH";
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run.trace", text = ampcheck("explain trace").out;
  std::ofstream script(folder.path() + "/read.py");
  std::istringstream lines(text.substr(text.find("  import json")));
  for (std::string line; std::getline(lines, line) && !line.empty();) script << line.substr(2) << "\n";
  script
      << "print(len(steps), len(tensors), tensors[-1]['step'], sum(t['elements'] for t in tensors), "
         "sum(sum(t['exponents'][1]) for t in tensors if 'exponents' in t), sum(sum(t.get('ulps', [])) for t in "
         "tensors))\n"
         "print(*('%.17g' % t.get(k, 0) for t in tensors for k in ('amax', 'local_error', 'bias', 'range_least')))\n";
  script.close();
  ASSERT_LE(ampcheck("train --steps 5 --every 50 --ring 3 --scaler none --lr 8 --batch 16 --record " + path).exit_code,
            1);
  const auto both = [&](const char* what) {
    const tools::Trace trace = tools::read_trace(path);
    const ProgramResult run = shell("cd '" + folder.path() + "' && python3 read.py");
    std::int64_t elements = 0, exponents = 0, ulps = 0;
    std::string values;
    for (const auto& t : trace.tensors) {
      elements += t.elements;
      exponents = std::accumulate(t.exponents.begin(), t.exponents.end(), exponents);
      ulps = std::accumulate(t.ulps.begin(), t.ulps.end(), ulps);
      for (const double v : {t.amax, t.local_error.value_or(0), t.bias.value_or(0), t.range ? t.range->amin : 0})
        values += fmt::format("{}{:.17g}", values.empty() ? "" : " ", v);
    }
    std::ostringstream want;
    want << trace.steps.size() << " " << trace.tensors.size() << " " << trace.tensors.back().step << " " << elements
         << " " << exponents << " " << ulps << "\n"
         << values << "\n";
    EXPECT_EQ(run.out, want.str()) << what << run.err;
  };
  both("whole");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 30);
  both("torn");
}

TEST(TraceFormat, TheListNamesItAndAWordNearItIsKnown) {
  EXPECT_TRUE(contains(ampcheck("explain").out, "\ntrace  "));
  std::set<std::string> topics;
  const json listed = json::parse(ampcheck("explain --json").out);
  for (const json& topic : listed["topics"]) topics.insert(topic["name"]);
  for (const char* name : {"formulas", "dumps", "trace", "torch", "tutorial"})
    EXPECT_TRUE(topics.contains(name)) << name;
  EXPECT_TRUE(contains(ampcheck("explain trase").err, "did you mean 'trace'"));
  EXPECT_EQ(ampcheck("explain xyzzyxyzzy").exit_code, 2);
}

}  // namespace
}  // namespace ampcheck::testing
