// SPDX-License-Identifier: Apache-2.0
// SARIF 2.1.0 (OASIS Standard, errata 01) as ampcheck writes it. Here are the rules of the specification for the
// objects that it writes, in our words: the published schema is 110 KB and under OASIS' policies, so none of it is
// here. Who has it names it in AMPCHECK_SARIF_SCHEMA; then both are held against each other, on right files and on
// wrong ones (python3 with jsonschema from PyPI, or Debian's python3-jsonschema).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/hostile_report.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {
namespace {

using nlohmann::json;
using testing::contains;
using testing::ProgramResult;
using testing::shell;
using testing::TemporaryFolder;

/// What a property holds: text, one of some words, a line number, an object or a list of objects by their name in the
/// specification, or texts by any name.
struct Value {
  enum class Kind { text, word, line, object, list, texts } kind = Kind::text;
  std::string of = {};
  std::vector<std::string> words = {};
};

struct Object {
  std::map<std::string, Value> may_have;
  std::set<std::string> must_have = {};
};

/// By name; the numbers are those of the specification's sections. Properties that ampcheck does not write are not
/// here: a new one is looked up there first.
const std::map<std::string, Object>& objects() {
  using Kind = Value::Kind;
  static const std::map<std::string, Object> all = {
      {"sarifLog",  // 3.13
       {{{"$schema", {}}, {"version", {Kind::word, "", {"2.1.0"}}}, {"runs", {Kind::list, "run"}}},
        {"version", "runs"}}},
      {"run",
       {{{"tool", {Kind::object, "tool"}}, {"results", {Kind::list, "result"}}}, {"tool", "results"}}},  // 3.14: of a
                                                                                                         // scan
      {"tool", {{{"driver", {Kind::object, "toolComponent"}}}, {"driver"}}},                             // 3.18
      {"toolComponent",                                                                                  // 3.19
       {{{"name", {}}, {"version", {}}, {"rules", {Kind::list, "reportingDescriptor"}}}, {"name"}}},
      {"reportingDescriptor",  // 3.49
       {{{"id", {}},
         {"shortDescription", {Kind::object, "multiformatMessageString"}},
         {"help", {Kind::object, "multiformatMessageString"}}},
        {"id"}}},
      {"multiformatMessageString", {{{"text", {}}}, {"text"}}},  // 3.12
      {"result",                                                 // 3.27
       {{{"ruleId", {}},
         {"level", {Kind::word, "", {"none", "note", "warning", "error"}}},
         {"message", {Kind::object, "message"}},
         {"locations", {Kind::list, "location"}},
         {"partialFingerprints", {Kind::texts}}},
        {"message"}}},
      {"message", {{{"text", {}}}, {"text"}}},  // 3.11: or an id, which ampcheck does not write
      {"location",                              // 3.28
       {{{"physicalLocation", {Kind::object, "physicalLocation"}},
         {"logicalLocations", {Kind::list, "logicalLocation"}}}}},
      {"physicalLocation",  // 3.29: or an address
       {{{"artifactLocation", {Kind::object, "artifactLocation"}}, {"region", {Kind::object, "region"}}},
        {"artifactLocation"}}},
      {"artifactLocation", {{{"uri", {}}}}},                               // 3.4
      {"region", {{{"startLine", {Kind::line}}}, {"startLine"}}},          // 3.30: or an offset
      {"logicalLocation", {{{"fullyQualifiedName", {}}, {"kind", {}}}}}};  // 3.33
  return all;
}

/// What is wrong with a value; `at`: where it stands.
class Rules {
 public:
  std::vector<std::string> wrong;

  void object(const json& value, const std::string& name, const std::string& at) {
    if (!value.is_object()) return say(at, "no object");
    const Object& known = objects().at(name);
    for (const std::string& key : known.must_have)
      if (!value.contains(key)) say(at, "no " + key);
    for (const auto& [key, item] : value.items()) {
      const auto property = known.may_have.find(key);
      if (property == known.may_have.end())
        say(at, name + " has no " + key);
      else
        look(item, property->second, at + "/" + key);
    }
  }

 private:
  void say(const std::string& at, const std::string& what) { wrong.push_back(at + ": " + what); }

  void look(const json& value, const Value& wanted, const std::string& at) {
    using Kind = Value::Kind;
    switch (wanted.kind) {
      case Kind::text:
        if (!value.is_string()) say(at, "no text");
        break;
      case Kind::word:
        if (!value.is_string() || std::ranges::find(wanted.words, value.get<std::string>()) == wanted.words.end())
          say(at, "no word that is known");
        break;
      case Kind::line:
        if (!value.is_number_integer() || value.get<std::int64_t>() < 1) say(at, "no line number");
        break;
      case Kind::object: object(value, wanted.of, at); break;
      case Kind::list:
        if (!value.is_array()) return say(at, "no list");
        for (std::size_t i = 0; i < value.size(); ++i) object(value[i], wanted.of, at + "/" + std::to_string(i));
        break;
      case Kind::texts:
        if (!value.is_object()) return say(at, "no object");
        for (const auto& [key, item] : value.items()) look(item, {}, at + "/" + key);
        break;
    }
  }
};

/// RFC 3986, 4.1, as far as a path goes: an absolute or relative reference without a character that needs an escape.
bool is_reference(const std::string& uri) {
  for (std::size_t i = 0; i < uri.size(); ++i) {
    const auto hex = [&](std::size_t at) {
      return at < uri.size() && std::isxdigit(static_cast<unsigned char>(uri[at]));
    };
    if (uri[i] == '%'
            ? !(hex(i + 1) && hex(i + 2))
            : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/!$&'()*+,;=@")
                      .find(uri[i]) == std::string_view::npos)
      return false;
  }
  return !uri.starts_with("//");  // would name a host
}

/// What a schema cannot say: each result's rule is described (3.27.5), once (3.49.3), and places are references
/// (3.4.3).
void look_across(const json& log, std::vector<std::string>& wrong) {
  for (const json& run : log.at("runs")) {
    std::set<std::string> ids;
    for (const json& rule : run.at("tool").at("driver").value("rules", json::array()))
      if (!ids.insert(rule.at("id").get<std::string>()).second) wrong.push_back("two rules of one id");
    for (const json& result : run.at("results")) {
      if (!ids.contains(result.value("ruleId", "")))
        wrong.push_back("a result of no rule: " + result.value("ruleId", ""));
      for (const json& place : result.value("locations", json::array()))
        if (const std::string uri = place.at("physicalLocation").at("artifactLocation").value("uri", "");
            !is_reference(uri))
          wrong.push_back("no URI: " + uri);
    }
  }
}

std::vector<std::string> wrong_with(const std::string& text) {
  const json log = json::parse(text, nullptr, false);
  if (log.is_discarded()) return {"no JSON"};
  Rules rules;
  rules.object(log, "sarifLog", "");
  if (rules.wrong.empty()) look_across(log, rules.wrong);
  return rules.wrong;
}

/// Files of all kinds: of names that break out, of plain ones, of none, and of the program.
std::map<std::string, std::string> right_files() {
  std::map<std::string, std::string> out;
  const std::vector<std::string> hostile = testing::hostile_names(), plain = {"op", "op.variant"};
  out["hostile"] = sarif_report(testing::report_of(hostile), testing::facts_of(hostile));
  out["plain"] = sarif_report(testing::report_of(plain), testing::facts_of(plain));
  RunFacts placed = testing::facts_of(plain);
  placed.sources["op"] = {"a folder/with:colon/op%.cpp", 12};
  out["with a source line"] = sarif_report(testing::report_of(plain), placed);
  out["empty"] = sarif_report({}, {});
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/check.sarif", gate = folder.path() + "/gate.sarif";
  testing::ampcheck("check add softmax.sign --regimes quick --dtype bf16 -o sarif:" + file);
  out["of a check"] = testing::read_text(file);
  testing::ampcheck("gate softmax.sign --regimes quick --dtype bf16 --baseline " + folder.path() +
                    "/none -o sarif:" + gate);
  out["of a gate"] = testing::read_text(gate);
  return out;
}

/// Wrong in one thing each, all of which the published schema sees.
std::map<std::string, std::string> wrong_files() {
  using Fault = std::function<void(json & log, json & run, json & result)>;
  const std::map<std::string, Fault> faults = {
      {"another version", [](json& log, json&, json&) { log["version"] = "2.1"; }},
      {"no version", [](json& log, json&, json&) { log.erase("version"); }},
      {"no list of runs", [](json& log, json&, json&) { log["runs"] = json::object(); }},
      {"no tool", [](json&, json& run, json&) { run.erase("tool"); }},
      {"a tool without its name", [](json&, json& run, json&) { run["tool"]["driver"].erase("name"); }},
      {"a version that is a number", [](json&, json& run, json&) { run["tool"]["driver"]["version"] = 1; }},
      {"a rule without its id", [](json&, json& run, json&) { run["tool"]["driver"]["rules"][0].erase("id"); }},
      {"help without its text",
       [](json&, json& run, json&) { run["tool"]["driver"]["rules"][0]["help"] = json::object(); }},
      {"a misspelt property", [](json&, json&, json& result) { result["ruleID"] = "AC101"; }},
      {"a rule that is a number", [](json&, json&, json& result) { result["ruleId"] = 101; }},
      {"no message", [](json&, json&, json& result) { result.erase("message"); }},
      {"an empty message", [](json&, json&, json& result) { result["message"] = json::object(); }},
      {"an unknown level", [](json&, json&, json& result) { result["level"] = "fatal"; }},
      {"line 0",
       [](json&, json&, json& result) { result["locations"][0]["physicalLocation"]["region"]["startLine"] = 0; }},
      {"a line that is text",
       [](json&, json&, json& result) { result["locations"][0]["physicalLocation"]["region"]["startLine"] = "1"; }},
      {"a region without a line",
       [](json&, json&, json& result) { result["locations"][0]["physicalLocation"]["region"] = json::object(); }},
      {"a place without a file",
       [](json&, json&, json& result) { result["locations"][0]["physicalLocation"].erase("artifactLocation"); }},
      {"one place for a list", [](json&, json&, json& result) { result["locations"] = result["locations"][0]; }},
      {"a fingerprint that is a number", [](json&, json&, json& result) { result["partialFingerprints"]["a"] = 1; }},
  };
  std::map<std::string, std::string> out;
  for (const auto& [what, fault] : faults) {
    json log = json::parse(sarif_report(testing::report_of({"op"}), {}));
    fault(log, log["runs"][0], log["runs"][0]["results"][0]);
    out[what] = log.dump();
  }
  return out;
}

TEST(Sarif, EveryFileIsAsTheSpecificationSays) {
  for (const auto& [what, text] : right_files()) {
    const std::vector<std::string> wrong = wrong_with(text);
    EXPECT_TRUE(wrong.empty()) << what << ", " << wrong.size() << " things, first " << wrong.front();
    if (what != "empty") {
      EXPECT_FALSE(json::parse(text).at("runs").at(0).at("results").empty()) << what;
    }
  }
}

TEST(Sarif, WhatTheSpecificationForbidsIsSeen) {
  for (const auto& [what, text] : wrong_files()) EXPECT_FALSE(wrong_with(text).empty()) << what;
  const std::string right = sarif_report(testing::report_of({"op"}), {});
  const auto with = [&](const std::function<void(json & run)>& fault) {
    json log = json::parse(right);
    fault(log["runs"][0]);
    return wrong_with(log.dump());
  };
  EXPECT_TRUE(with([](json&) {}).empty());
  EXPECT_FALSE(with([](json& run) { run["results"][0]["ruleId"] = "AC999"; }).empty());
  EXPECT_FALSE(
      with([](json& run) { run["tool"]["driver"]["rules"].push_back(run["tool"]["driver"]["rules"][0]); }).empty());
  for (const char* const uri : {"a b", "a\\b", "//host/x", "%zz", "C:/x", "<a>"})
    EXPECT_FALSE(with([&](json& run) {
                   run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] = uri;
                 }).empty())
        << uri;
}

/// Prints the name of each file that the schema refuses.
constexpr const char* kHolds = R"(
import json, pathlib, sys
import jsonschema
schema = json.load(open(sys.argv[1]))
validator = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
    for error in validator.iter_errors(json.load(open(path))):
        print(path.name, error.json_path if hasattr(error, 'json_path') else '', error.message[:200], sep='\t')
        break
)";

TEST(Sarif, ThePublishedSchemaSaysTheSame) {
  const char* const schema = std::getenv("AMPCHECK_SARIF_SCHEMA");
  if (schema == nullptr)
    GTEST_SKIP() << "AMPCHECK_SARIF_SCHEMA does not name sarif-schema-2.1.0.json (docs.oasis-open.org/sarif)";
  if (shell("python3 -c 'import jsonschema'").exit_code != 0) GTEST_SKIP() << "no python3 with jsonschema";
  const TemporaryFolder folder, script;
  std::set<std::string> want, got;
  const auto put = [&](const std::map<std::string, std::string>& files) {
    for (const auto& [what, text] : files) std::ofstream(folder.path() + "/" + what) << text;
  };
  put(right_files());
  put(wrong_files());
  for (const auto& [what, text] : wrong_files()) want.insert(what);
  std::ofstream(script.path() + "/holds.py") << kHolds;
  const ProgramResult run = shell("python3 '" + script.path() + "/holds.py' '" + schema + "' '" + folder.path() + "'");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (std::size_t at = 0; at < run.out.size(); at = run.out.find('\n', at) + 1)
    got.insert(run.out.substr(at, run.out.find('\t', at) - at));
  EXPECT_EQ(got, want) << run.out;
}

}  // namespace
}  // namespace ampcheck::tools
