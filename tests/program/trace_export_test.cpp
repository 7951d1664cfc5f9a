// SPDX-License-Identifier: Apache-2.0
// `ampcheck trace`: what its tables, its CSV and its JSON say is the same, and what is computed from many lines is
// right.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <sstream>

#include "src/float_format.h"
#include "tests/support/run_program.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

class TraceExport : public ::testing::Test {
 protected:
  std::string record(const std::string& arguments) {
    const std::string path = folder_.path() + "/run.trace";
    const ProgramResult run = ampcheck("train --data digits --record " + path + " " + arguments);
    EXPECT_LE(run.exit_code, 1) << run.err;
    return path;
  }
  /// A trace of given lines after the first.
  std::string trace_of(const std::string& lines) {
    const std::string path = folder_.path() + "/hand.trace";
    std::ofstream(path)
        << R"({"schema":"ampcheck.trace/1","model":"m","dtype":"fp16","scaler":"none","seed":1,"steps":2,"local":true,"carried":false})"
        << "\n"
        << lines;
    return path;
  }
  TemporaryFolder folder_;
};

/// Rows by column; names of these nets need no quotes.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& csv) {
  const auto split = [](const std::string& line) {
    std::vector<std::string> out(1);
    for (const char c : line)
      if (c == ',')
        out.emplace_back();
      else
        out.back() += c;
    return out;
  };
  std::istringstream in(csv);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> columns = split(line);
  std::vector<std::map<std::string, std::string>> out;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = split(line);
    EXPECT_EQ(cells.size(), columns.size()) << line;
    auto& row = out.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) row[columns[i]] = cells[i];
  }
  return out;
}

/// What a column of the CSV is called in the JSON of a tensor, where it has another name.
const std::map<std::string, std::string> kOtherNames = {{"step", "worst_step"},
                                                        {"role", "roles"},
                                                        {"rank", "ranks"},
                                                        {"scale_low", "loss_scales"},
                                                        {"scale_high", "loss_scales"}};

using Row = std::map<std::string, std::string>;

/// A tensor's rows of the CSV: of each column of numbers the sum and the least.
struct TensorRows {
  std::map<std::string, double> sums, least;
};
/// op, phase, tensor, whether it is a cast, dtype.
using TensorKey = std::tuple<std::string, std::string, std::string, bool, std::string>;

std::map<TensorKey, TensorRows> by_tensor(const std::vector<Row>& rows) {
  std::map<TensorKey, TensorRows> out;
  for (const Row& row : rows) {
    TensorRows& of = out[{row.at("op"), row.at("phase"), row.at("tensor"), row.at("cast") == "1", row.at("dtype")}];
    for (const auto& [column, cell] : row) {
      if (cell.empty() || (cell[0] != '-' && (cell[0] < '0' || cell[0] > '9'))) continue;
      const double value = std::stod(cell);
      of.sums[column] += value;
      const auto [at, fresh] = of.least.try_emplace(column, value);
      at->second = std::min(at->second, value);
    }
  }
  return out;
}

void expect_tensor(const json& t, TensorRows rows) {
  for (const char* count : {"elements", "zero", "subnormal", "inf", "nan", "nonzero", "flushed", "overflowed",
                            "subnormal_loss", "saturated", "flipped", "undecided", "intended", "stagnant"})
    EXPECT_EQ(t[count].get<double>(), rows.sums[count]) << t["name"] << count;
  for (const char* room : {"headroom", "footroom"}) {
    EXPECT_EQ(t[room].is_null(), !rows.least.contains(room)) << t["name"] << room;
    if (!t[room].is_null()) {
      EXPECT_EQ(t[room].get<double>(), rows.least[room]) << t["name"] << room;
    }
  }
  std::int64_t judged = 0;
  for (const json& n : t["ulps"]) judged += n.get<std::int64_t>();
  EXPECT_EQ(judged, t["bias"].is_null() ? 0 : t["elements"].get<std::int64_t>())
      << t["name"] << ": nothing is infinite here";
  EXPECT_EQ(t["ranks"], t["phase"] == "forward" || t["phase"] == "backward" ? 2 : 1) << t["name"];
  for (const char* worst : {"worst_local", "worst_carried", "worst_bias_z", "loss_error", "exponents"})
    EXPECT_TRUE(t.contains(worst)) << worst;
}

void expect_step(const json& s, const std::vector<Row>& rows) {
  for (const char* key : {"loss", "fp64_loss", "spread", "loss_drift", "scale", "scale_after", "found_inf", "stepped",
                          "stagnant_share", "worst"})
    EXPECT_TRUE(s.contains(key)) << key;
  double flushed = 0;
  for (const Row& row : rows)
    if (row.at("step") == std::to_string(s["step"].get<int>()) && row.at("phase") == "backward" &&
        row.at("dtype") == "fp16")
      flushed += std::stod(row.at("flushed"));
  EXPECT_EQ(s["flushed"].get<double>(), flushed);
}

TEST_F(TraceExport, JsonHasWhatTheTablesAndTheCsvHave) {
  const std::string path = record("--steps 3 --ranks 2 --scaler torch");
  const json j = json::parse(ampcheck("trace --json " + path).out);
  const std::vector<Row> rows = rows_of(ampcheck("trace --csv " + path).out);
  const std::map<TensorKey, TensorRows> tensors = by_tensor(rows);
  ASSERT_EQ(j["tensors"].size(), tensors.size());
  for (const json& t : j["tensors"]) {
    for (const auto& [column, cell] : rows.front())
      if (column != "seq" && column != "scale" && !column.starts_with("gradient of ")) {
        const std::string name = kOtherNames.contains(column) ? kOtherNames.at(column) : column;
        EXPECT_TRUE(t.contains(name) || j.contains(name)) << column;
      }
    const auto word = [&](const char* name) { return t[name].get<std::string>(); };
    const TensorKey key(word("op"), word("phase"), word("tensor"), t["cast"].get<bool>(), word("dtype"));
    ASSERT_TRUE(tensors.contains(key)) << t["name"];
    expect_tensor(t, tensors.at(key));
  }
  ASSERT_EQ(j["steps"].size(), 3u);
  for (const json& s : j["steps"]) expect_step(s, rows);
  EXPECT_EQ(j["steps_wanted"], 3);
  EXPECT_EQ(j["casts"]["kinds"]["fp32 to fp16"], 7);
  EXPECT_TRUE(j["faults"].empty());
}

TEST_F(TraceExport, FaultsAndRepeatedCastsAreInTheJson) {
  const json j = json::parse(ampcheck("trace --json " + record("--steps 3 --lr 3000 --scaler none --shadow off")).out);
  ASSERT_FALSE(j["faults"].empty());
  EXPECT_EQ(j["faults"][0]["role"], "producer");
  EXPECT_EQ(j["faults"][0]["step"], 1);
  const std::string path = folder_.path() + "/text.trace";
  ASSERT_EQ(ampcheck("train --model transformer --dtype bf16 --shadow off --steps 1 --record " + path).exit_code, 0);
  const json repeated = json::parse(ampcheck("trace --json " + path).out)["casts"]["repeated"];
  EXPECT_EQ(repeated[0]["ops"], json({"linear_1", "linear_2", "linear_3"}));
}

/// How far a tensor is from either end of its format.
TEST_F(TraceExport, FootroomIsNegativeBelowTheSmallestNormal) {
  const std::string path = record("--steps 2 --scaler none --shadow off");
  int below = 0, above = 0;
  for (const auto& row : rows_of(ampcheck("trace --csv " + path).out)) {
    if (row.at("amin") == "0") {
      EXPECT_EQ(row.at("footroom"), "");
      continue;
    }
    const double room = std::stod(row.at("footroom"));
    EXPECT_EQ(room < 0, row.at("subnormal") != "0") << row.at("op");
    if (row.at("dtype") == "fp16") {
      EXPECT_NEAR(std::exp2(room), std::stod(row.at("amin")) / kFp16.min_normal(), 1e-9 * std::exp2(room));
    }
    ++(room < 0 ? below : above);
  }
  EXPECT_GT(below, 0);
  EXPECT_GT(above, 0);
  EXPECT_TRUE(contains(ampcheck("trace " + path).out, "headroom  footroom\n"));
}

/// Mean error of all elements of two steps: 100 of mean 0.5, then 300 of mean -0.1, each with standard error 0.1 of the
/// mean.
TEST_F(TraceExport, BiasIsOfAllElementsOfTheRun) {
  const auto line = [](int step, const char* bias, const char* z, int n) {
    return R"({"step":)" + std::to_string(step) +
           R"(,"seq":0,"phase":"forward","cast":false,"op":"relu_1","layer":"","tensor":"y","dtype":"fp16","from":"","source":0,"scale":1,"elements":)" +
           std::to_string(n) + R"(,"zero":0,"subnormal":0,"inf":0,"nan":0,"amax":1,"amin":1,"exponents":[0,[)" +
           std::to_string(n) +
           R"(]],"nonzero":0,"flushed":0,"overflowed":0,"local_error":0.1,"subnormal_loss":0,"saturated":0,"bias":)" +
           bias + R"(,"bias_z":)" + z + R"(,"ulps":[0,)" + std::to_string(n) +
           R"(],"carried_error":null,"intended":0,"stagnant":0,"role":"none"})" +
           "\n{\"step\":" + std::to_string(step) +
           R"(,"loss":1,"fp64_loss":null,"spread":null,"scale":1,"scale_after":1,"found_inf":false,"stepped":true,"stagnant_share":0})" +
           "\n";
  };
  const json j =
      json::parse(ampcheck("trace --json " + trace_of(line(0, "0.5", "5", 100) + line(1, "-0.1", "-1", 300))).out);
  const json& t = j["tensors"][0];
  EXPECT_DOUBLE_EQ(t["bias"].get<double>(), (50.0 - 30.0) / 400);
  EXPECT_DOUBLE_EQ(t["bias_z"].get<double>(), (50.0 - 30.0) / std::hypot(10.0, 30.0));
  EXPECT_EQ(t["worst_bias_z"].get<double>(), 5);
  EXPECT_EQ(t["ulps"], json({0, 400}));
}

TEST_F(TraceExport, ATraceOfAnUnknownDtypeIsNone) {
  const std::string path = trace_of("");
  std::string text = read_text(path);
  std::ofstream(path) << text.replace(text.find("fp16"), 4, "fp17");
  for (const char* how : {"", "--json ", "--csv "}) {
    const ProgramResult run = ampcheck("trace " + std::string(how) + path);
    EXPECT_EQ(run.exit_code, 2) << how;
    EXPECT_TRUE(contains(run.err, "line 1, got dtype \"fp17\"")) << run.err;
  }
}

}  // namespace
}  // namespace ampcheck::testing
