// SPDX-License-Identifier: Apache-2.0
// The page `json` of the manual beside what the program writes: each field is there with its type, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"
#include "tools/choose/command_table.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;
using Path = std::vector<std::string>;  // "cases", "[]", "case"

struct Field {
  Path path;
  std::string type;
};
using Page = std::map<std::string, std::vector<Field>>;  // by schema

/// "cases[].case" as a path.
Path path_of(const std::string& text) {
  Path out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, '.');) {
    std::size_t lists = 0;
    for (; part.ends_with("[]"); ++lists) part.resize(part.size() - 2);
    out.push_back(part);
    out.insert(out.end(), lists, "[]");
  }
  return out;
}

std::string text_of(const Path& path) {
  std::string out;
  for (const std::string& part : path) out += (part == "[]" || out.empty() ? "" : ".") + part;
  return out;
}

/// What stands between backquotes.
std::vector<std::string> code_spans(const std::string& line) {
  static const std::regex kSpan("`([^`]+)`");
  std::vector<std::string> out;
  for (std::sregex_iterator at(line.begin(), line.end(), kSpan), end; at != end; ++at) out.push_back((*at)[1]);
  return out;
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> out;
  std::istringstream in(row.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
    out.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return out;
}

/// The tables of a page. A heading ends with its schema; a line "Of `x[]`, ..." says in what the next table's fields
/// are.
Page parse_page(const std::string& text) {
  static const std::regex kSchema(R"(^## .*: (ampcheck\.[a-z_]+/\d+)$)");
  Page out;
  std::string schema;
  std::vector<std::string> in_what = {""};
  std::istringstream in(text);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, match, kSchema)) {
      schema = match[1];
      in_what = {""};
    } else if (line.starts_with("Of ")) {
      in_what = code_spans(line);
    } else if (line.starts_with("| `") && !schema.empty()) {
      const std::vector<std::string> cells = cells_of(line);
      for (const std::string& what : in_what)
        for (const std::string& name : code_spans(cells.at(0)))
          out[schema].push_back({path_of(what.empty() ? name : what + "." + name), cells.at(1)});
    } else if (!line.empty() && !line.starts_with("|")) {
      in_what = {""};
    }
  }
  return out;
}

bool is_of_type(const json& value, const std::string& type) {
  static const std::regex kHex("-?0x[0-9a-f.]+p[-+][0-9]+|-?inf|nan"), kNotFinite("-?inf|nan");
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (type == "text") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "yes/no") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "hex") return std::regex_match(text, kHex);
  return type == "number" && (value.is_number() || std::regex_match(text, kNotFinite));
}

/// "number or null": one of them.
bool is_of_types(const json& value, const std::string& types) {
  for (std::size_t begin = 0; begin < types.size();) {
    const std::size_t end = std::min(types.find(" or ", begin), types.size());
    if (is_of_type(value, types.substr(begin, end - begin))) return true;
    begin = end + 4;
  }
  return false;
}

bool fits(const Path& on_page, const Path& real) {
  return std::ranges::equal(
      on_page, real, [](const std::string& a, const std::string& b) { return a == b || (a == "*" && b != "[]"); });
}

bool stands_below(const Path& field, const Path& real) {
  return field.size() > real.size() &&
         fits(Path(field.begin(), field.begin() + static_cast<std::ptrdiff_t>(real.size())), real);
}

/// Compares answers of one schema with the page's fields.
class Comparison {
 public:
  explicit Comparison(std::vector<Field> fields) : fields_(std::move(fields)) {}

  void see(const json& value, const Path& at = {}) {
    bool known = false;
    for (const Field& field : fields_) {
      if (!fits(field.path, at)) continue;
      known = true;
      seen_.insert(field.path);
      if (!is_of_types(value, field.type))
        faults_.insert(text_of(at) + " is " + value.dump().substr(0, 60) + ", the page says " + field.type);
      if (value.is_object() && !has_below(at)) return;  // a whole that is described elsewhere
    }
    if (value.is_object()) {
      for (const auto& [key, part] : value.items()) see(part, joined(at, key));
    } else if (value.is_array()) {
      for (const json& part : value) see(part, joined(at, "[]"));
    } else if (!known && !(value.is_null() && has_below(at))) {
      faults_.insert(text_of(at) + " is not on the page");
    }
  }

  /// What the page has otherwise; `elsewhere`: fields that no answer here can have.
  std::set<std::string> faults(const std::set<std::string>& elsewhere) const {
    std::set<std::string> out = faults_;
    for (const Field& field : fields_)
      if (!seen_.contains(field.path) && !elsewhere.contains(text_of(field.path)))
        out.insert(text_of(field.path) + " is on the page and in no answer");
    return out;
  }

 private:
  static Path joined(Path path, const std::string& part) {
    path.push_back(part);
    return path;
  }
  bool has_below(const Path& at) const {
    return std::ranges::any_of(fields_, [&](const Field& field) { return stands_below(field.path, at); });
  }

  std::vector<Field> fields_;
  std::set<Path> seen_;
  std::set<std::string> faults_;
};

/// Fields of answers that need a GPU, too little memory, a kernel that rounds its results further than it stores them,
/// or an op that has a net and lacks something else.
const std::map<std::string, std::set<std::string>> kElsewhere = {
    {"ampcheck.doctor/1",
     {"cuda.devices[].name", "cuda.devices[].major", "cuda.devices[].minor", "cuda.devices[].memory_gib"}},
    {"ampcheck.journal/1", {"sampled", "again"}},
    {"ampcheck.contract/1", {"ops[].narrow[].tensor", "ops[].narrow[].fits"}},
    // Of an op that lacks something; no built-in one does.
    {"ampcheck.wanting/1",
     {"ops[].nets[]", "ops[].op", "ops[].values", "ops[].defects", "ops[].variants", "ops[].wanting[]"}},
    {"ampcheck.train/1", {"judged.left_out[]"}},     // of calls that are too large to be judged in passing
    {"ampcheck.check/1", {"variants[].unknown[]"}},  // of kernels that crash in every case
    {"ampcheck.gate/1", {"ops[].not_run[]", "variants[].unknown[]"}},
    // Of dumps and recordings that differ in more than those below.
    {"ampcheck.diagnose_stacks/1",
     {"only_a[]", "only_b[]", "unread[]", "notes[]", "ops[].differing_inputs[]", "ops[].notes[]"}},
    {"ampcheck.trace_summary/1",
     {"moved_late[].step", "moved_late[].launched", "moved_late[].bytes", "moved_late[].what", "moved_late[].after"}},
};

/// A pending file with a finding.
const std::string kPending =
    "version >x; unset CI; $AMPCHECK gate $OPS/gated_sum_bf16_sum.so --regimes quick --baseline b >x; ";

/// Lines of other tools, as a script writes them.
const std::string kFrames =
    "version >x; printf 'abs min  abs max  metadata\n                  a.wi Linear\n1.00e+00      nan input[0]\n"
    "1.00e+00 2.00e+00 output\n' >f; ";
const std::string kTitan =
    "version >x; for n in 1 2; do printf 'Total captured activations: 2\n[a/op_0_mm]\n  L2 norm: 1.5\n  Output hash: "
    "'$n'\n  Input hashes: 4\n[only'$n'/op_0_mm]\n  L2 norm: 3\n[b/op_0_mm]\n  L2 norm: 1.'$n'\n  Input hashes: '$n'"
    "\n' >t$n; done; ";
const std::string kDebugLog =
    "version >x; for n in 1 2; do printf 'd - INFO - a_output_max iteration=000001 value='$n'.0000\n' >d$n; done; ";
/// A net whose values leave fp16 at once.
const std::string kEighthPower =
    "version >x; printf 'data = \"random\"\nwidth = 32\n[[layers]]\ntype = \"linear\"\noutputs = 48\nname = "
    "\"a\"\n[[layers]]\ntype = \"mul\"\nof = \"a\"\nname = \"b\"\n[[layers]]\ntype = \"mul\"\nof = "
    "\"b\"\nname = \"c\"\n[[layers]]\ntype = \"mul\"\nof = \"c\"\n[[layers]]\ntype = "
    "\"layer_norm\"\n[[layers]]\ntype = \"linear\"\n' >net.toml; ";

/// Commands whose answers have every field between them; what comes before the last line of a script prepares it.
const std::map<std::string, std::vector<std::string>> kCommands = {
    {"ampcheck.check/1",
     {"check 'softmax.dot_missing(x=bf16[*,7],seed=1)' softmax.missing_factor --dtype bf16 --regimes quick --json",
      "check $OPS/log_sigmoid.so --regimes quick --json", "check $OPS/no_formula.so --regimes quick --json",
      "check $OPS/gated_sum_bad_variant.so --variants --shapes first --dtype fp32 --json",
      "check embedding --regimes quick --json",
      "check $OPS/launches.so twice --device ptx --lines --regimes quick --json",
      "check relu --regimes quick --run-file m.run >x; $AMPCHECK merge m.run --json",
      "replay 'softmax(x=bf16[5,7],seed=1)' --json"}},
    {"ampcheck.journal/1", {"check $OPS/log_sigmoid.so --regimes quick --journal journal >checked; cat journal"}},
    {"ampcheck.tensors/1", {"replay 'softmax(x=bf16[5,7],seed=1)' --save case >saved; cat case/case.json"}},
    {"ampcheck.list/1", {"list --json"}},
    {"ampcheck.cases/1", {"list --cases 'relu(*' --json"}},
    {"ampcheck.kernels/1",
     {"version >x; printf '.version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 "
      "x)\n{\nret;\n}\n' "
      ">k.ptx; $AMPCHECK list k.ptx --json"}},
    {"ampcheck.planted/1", {"list --planted --json"}},
    {"ampcheck.wanting/1", {"list --wanting --json"}},
    {"ampcheck.certify/1", {"certify gelu embedding --json"}},
    {"ampcheck.compare/1", {"compare $OPS/add_layer_norm.so $OPS/add_layer_norm.so --regimes quick --json"}},
    {"ampcheck.gate/1",
     {"gate $OPS/gated_sum_bad_variant.so --variants --regimes quick --dtype fp32 --record v.json --json",
      "gate $OPS/gated_sum_none.so --regimes quick --dtype bf16 --base $OPS/gated_sum_none.so --json",
      "gate $OPS/gated_sum_none.so --regimes quick --record r.json >x; "
      "$AMPCHECK gate $OPS/gated_sum_bf16_sum.so --regimes quick --base r.json --json",
      "version >x; unset CI; $AMPCHECK gate softmax --regimes quick --baseline b >x; "
      "$AMPCHECK accept --baseline b --reason a >x; $AMPCHECK gate softmax --regimes quick --seeds 2 --baseline b "
      "--json",
      "gate $OPS/gated_sum_none.so --regimes quick --dtype bf16 --record s.json >x; "
      "sed -i s/cpu-x86_64/cuda-sm_90/ s.json; "
      "$AMPCHECK gate $OPS/gated_sum_none.so --regimes quick --dtype bf16 --base s.json --json"}},
    {"ampcheck.baseline/1",
     {kPending + "cat b/gated_sum.json.pending",
      kPending + "$AMPCHECK accept --baseline b --waive AC301 --until 2099-01-01 --reason a >x; cat b/gated_sum.json",
      "version >x; unset CI; git init -q .; git -c user.name=a -c user.email=b commit -q --allow-empty -m a; "
      "for change in none reassociated; do "
      "$AMPCHECK gate $OPS/gated_sum_$change.so --regimes quick --baseline g >x; "
      "$AMPCHECK accept --baseline g --reason a >x; done; cat g/gated_sum.json"}},
    {"ampcheck.record/1", {"gate $OPS/gated_sum_none.so --regimes quick --record r.json >x; cat r.json"}},
    {"ampcheck.accept/1",
     {kPending + "$AMPCHECK accept --baseline b --reason a --json",
      "version >x; unset CI; $AMPCHECK gate relu --regimes quick --baseline c >x; "
      "$AMPCHECK accept --baseline c --reason a --json"}},
    {"ampcheck.review/1",
     {kPending + "$AMPCHECK review --baseline b --json",
      "version >x; unset CI; $AMPCHECK gate $OPS/gated_sum_none.so --regimes quick --dtype bf16 --baseline d >x; "
      "$AMPCHECK accept --baseline d --reason a >x; sed -i 's/seed=1)\"/seed=7)\"/' d/gated_sum.json; "
      "$AMPCHECK gate $OPS/gated_sum_dropped_tail.so --regimes quick --baseline d >x; $AMPCHECK review --baseline d "
      "--json",
      "version >x; unset CI; $AMPCHECK gate $OPS/gated_sum_one_chain.so --seeds 6 --dtype fp32 --baseline f "
      ">x; $AMPCHECK accept --baseline f --reason a >x; "
      "$AMPCHECK gate $OPS/gated_sum_none.so --seeds 6 --dtype fp32 --baseline f >x; $AMPCHECK review --baseline f "
      "--json",
      "version >x; unset CI; $AMPCHECK gate $OPS/gated_sum_none.so --regimes quick --baseline e >x; "
      "$AMPCHECK accept --baseline e --reason a >x; "
      "$AMPCHECK gate $OPS/gated_sum_dropped_tail.so --regimes quick --baseline e >x; $AMPCHECK review --baseline e "
      "--json"}},
    {"ampcheck.run/1", {"check $OPS/log_sigmoid.so --regimes quick --run-file r.run >x; cat r.run"}},
    {"ampcheck.mutate/1",
     {"version >x; mkdir -p m; cd m; $AMPCHECK new op swish --door c >x; cd swish; $AMPCHECK mutate swish.c --check "
      "libswish.so --regimes quick --shapes first --limit 2 --json -- cc -std=c11 -shared -fPIC -I . swish.c -o "
      "libswish.so -lm"}},
    {"ampcheck.config/1",
     {"version >x; mkdir -p p; printf '[check]\\nregimes = \"quick\"\\n' >p/ampcheck.toml; cd p; $AMPCHECK config "
      "--json"}},
    {"ampcheck.completion/1", {"completion bash --json"}},
    {"ampcheck.contract/1",
     {"contract softmax sum softmax.y_saved_in_bf16 --json", "contract linear --accumulate h100 --dtype fp16 --json"}},
    {"ampcheck.audit_zoo/1", {"audit zoo relu mean --dtype fp32 --regimes quick --json"}},
    {"ampcheck.audit_gate/1", {"audit gate relu softmax --atol 0 --rtol 0 --json"}},
    {"ampcheck.audit_presets/1",
     {"audit gate --preset kernelbench mean --json", "audit gate --preset torch div --json"}},
    {"ampcheck.audit_scaler/1", {"audit scaler torch --json"}},
    {"ampcheck.audit_step/1", {"audit step $OPS/my_loop_COUNTS_SKIPS.so --json"}},
    {"ampcheck.audit_scaler_log/1",
     {"train --steps 4 --shadow off --record t >trained; (cat t; echo '{\"step\": 5') >u; $AMPCHECK audit scaler --log "
      "u "
      "--rule deepspeed --json",
      "explain ci >page; (cat page; echo Found overflow. Skip step) >log; $AMPCHECK audit scaler --log log --json"}},
    {"ampcheck.audit_autocast/1",
     {"audit autocast --json", kEighthPower + "$AMPCHECK audit autocast net.toml --json",
      "audit autocast transformer --batches 1 --json",
      "train --steps 2 --record t >trained; $AMPCHECK audit autocast t --json",
      kEighthPower + "$AMPCHECK train net.toml --steps 2 --record t >trained; $AMPCHECK audit autocast t --json"}},
    {"ampcheck.audit_autocast_list/1",
     {"version >x; printf 'softmax low\nbinary_cross_entropy\n' >l; $AMPCHECK audit autocast l --json"}},
    {"ampcheck.autocast_lists/1", {"autocast lists --json"}},
    {"ampcheck.train/1",
     {"train --dtype fp8 --steps 2 --json", "train --steps 3 --grad-penalty 0.1 --json",
      "train --steps 4 --lr 1000 --json", "train --scaler none --optimizer adam --loss-weight 1e-6 --steps 3 --json",
      "train --loss 'cross_entropy,mse*0.5' --optimizer sgd --optimizer adam,lr=0.003,clip_norm=1@layer2 --moments "
      "bf16 "
      "--steps 3 --shadow local --json"}},
    {"ampcheck.diagnose/1",
     {kEighthPower + "$AMPCHECK diagnose net.toml --json", "diagnose mlp --lr 1000 --steps 6 --json",
      "diagnose mlp --json"}},
    {"ampcheck.audit_train/1", {"audit train rms_norm.normal_term_missing --json"}},
    {"ampcheck.audit_diagnose/1", {"audit diagnose layer_overflows healthy_clip scale_comes_down --json"}},
    {"ampcheck.trace_summary/1",
     {"train --steps 4 --lr 1000 --record a >trained; $AMPCHECK trace a --json",
      "train --model transformer --steps 2 --record b >trained; $AMPCHECK trace b --json",
      "train --steps 2 --record c >trained; truncate -s -1 c.bin; $AMPCHECK trace c --json",
      "train --loss 'cross_entropy,mse*0.5' --optimizer sgd,clip_norm=1@layer2 --steps 1 --record d >trained; "
      "$AMPCHECK trace d --json"}},
    {"ampcheck.diagnose_stacks/1", {"diagnose $OPS/gated_sum_none.so $OPS/gated_sum_bf16_sum.so --dtype bf16 --json"}},
    {"ampcheck.diagnose_recording/1",
     {kFrames + "$AMPCHECK diagnose f --json",
      "version >x; printf 'abs min  abs max  metadata\n                  a.norm Norm\n1.00e+00 2.00e+00 output\n"
      "                  a.wi Linear\n1.00e+00 2.00e+00 input[0]\n1.00e+00      inf output\n' >g; $AMPCHECK diagnose g "
      "--json"}},
    {"ampcheck.diagnose_recordings/1",
     {kTitan + "$AMPCHECK diagnose t1 t2 --json", kTitan + "$AMPCHECK diagnose t1 t1 --json"}},
    {"ampcheck.diagnose_debug_log/1", {kDebugLog + "$AMPCHECK diagnose d1 --json"}},
    {"ampcheck.diagnose_debug_logs/1", {kDebugLog + "$AMPCHECK diagnose d1 d2 --json"}},
    {"ampcheck.diagnose_log/1",
     {"version >x; (echo step,loss,grad_norm,lr; for i in $(seq 60); do echo $i,$((100 - i)),$((i > 30 ? 100 + i : "
      "9)),0.1; done; "
      "echo 61,nan,nan,0.1) >l.csv; $AMPCHECK diagnose l.csv --json",
      "version >x; printf 'step=1 loss=2 loss_scale=8\nstep=2 loss=nan loss_scale=8\n' >l; $AMPCHECK diagnose l "
      "--json"}},
    {"ampcheck.memory/1", {"memory mlp --json --share 0.25", "memory --parameters 7.5e9 --share 0.2 --json"}},
    {"ampcheck.facts/1", {"facts --json", "facts --times --json"}},
    {"ampcheck.mma/1",
     {"mma h100 --json",
      "version >x; printf '# in=fp16 out=fp32\\n3c00 | 3c00 | 0\\n' >v; $AMPCHECK mma h100 -f v --json",
      "version >x; printf '# in=fp16 out=fp32\\n3c00 | 3c00 | 0 | 3f800001\\n' >v; $AMPCHECK mma h100 -f v --json",
      "version >x; printf '# in=fp16 out=fp32\\n3c00 | 3c00 | 0 | 3f800000\\n' >v; $AMPCHECK mma h100 -f v --json",
      "version >x; o=$(for i in $(seq 32); do echo 38; done | tr '\\n' ' '); printf '# scaled=mxf8f6f4 in=e4m3\\n' >v; "
      "echo "
      "\"$o | $o | 7f | 7f | 0\" >>v; $AMPCHECK mma b200 -f v --json",
      "version >x; o=$(for i in $(seq 32); do echo 38; done | tr '\\n' ' '); printf '# scaled=mxf8f6f4 in=e4m3\\n' >v; "
      "echo "
      "\"$o | $o | 7f | 7f | 0 | 42000000\" >>v; $AMPCHECK mma b200 -f v --json"}},
    {"ampcheck.formats/1", {"formats --json", "formats 0.1 --json"}},
    {"ampcheck.codes/1", {"explain --json", "explain AC301 --json"}},
    {"ampcheck.page/1", {"explain ci --json", "explain check --json"}},
    {"ampcheck.new/1", {"new op my_op --json"}},
    {"ampcheck.doctor/1", {"doctor --json"}},
    {"ampcheck.version/1", {"version --json"}},
};

/// The answers of a script: one, or one for each line.
std::vector<json> answers_of(const std::string& folder, const std::string& script) {
  const std::string out =
      shell("cd '" + folder + "'; OPS='" + tests::in_build("/custom_ops") + "'; \"$AMPCHECK\" " + script).out;
  if (json::accept(out)) return {json::parse(out)};
  std::vector<json> answers;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);)
    if (json::accept(line)) answers.push_back(json::parse(line));
  return answers;
}

class JsonPage : public ::testing::TestWithParam<std::string> {};

TEST_P(JsonPage, NamesEachFieldAndNoOther) {
  const std::string& schema = GetParam();
  if (kSanitized && schema != "ampcheck.check/1") GTEST_SKIP() << "slow under sanitizers: one schema stands for all";
  const Page page = parse_page(read_text(tests::in_source("/tools/manual/json.md")));
  ASSERT_TRUE(page.contains(schema)) << "tools/manual/json.md has no heading that ends with ': " << schema << "'";
  const TemporaryFolder folder;
  Comparison comparison(page.at(schema));
  for (const std::string& script : kCommands.at(schema)) {
    const std::vector<json> answers = answers_of(folder.path(), script);
    ASSERT_FALSE(answers.empty()) << script;
    EXPECT_EQ(answers.front().at("schema"), schema) << script;
    for (const json& answer : answers) comparison.see(answer);
  }
  const auto elsewhere = kElsewhere.find(schema);
  EXPECT_EQ(comparison.faults(elsewhere == kElsewhere.end() ? std::set<std::string>{} : elsewhere->second),
            std::set<std::string>{});
}

std::vector<std::string> schemas() {
  std::vector<std::string> out;
  for (const auto& [schema, scripts] : kCommands) out.push_back(schema);
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, JsonPage, ::testing::ValuesIn(schemas()), [](const auto& info) {
  const std::size_t begin = info.param.find('.') + 1;
  return info.param.substr(begin, info.param.find('/') - begin);
});

TEST(JsonPageItself, EveryCommandIsAskedAndEverySectionIsTested) {
  std::string scripts;
  for (const auto& [schema, list] : kCommands)
    for (const std::string& script : list) scripts += "\n" + script + " ; $AMPCHECK " + script;
  for (const tools::CommandText& command : tools::command_table())
    EXPECT_TRUE(contains(scripts, "\n" + command.name + " ") || contains(scripts, "AMPCHECK " + command.name + " "))
        << command.name << ": its JSON is on no page";
  for (const auto& [schema, fields] : parse_page(read_text(tests::in_source("/tools/manual/json.md"))))
    EXPECT_TRUE(kCommands.contains(schema)) << schema;
}

TEST(JsonPageItself, WhatIsMissingWrongOrTooMuchIsSeen) {
  const std::string text =
      "## x: ampcheck.x/1\n\n| field | type | is |\n|---|---|---|\n| `a`, `b` | integer | counts |\n\n"
      "Of each `c[]`:\n\n| field | type | is |\n|---|---|---|\n| `d.*` | number or null | one |\n";
  const auto faults_of = [&](const char* answer) {
    Comparison comparison(parse_page(text).at("ampcheck.x/1"));
    comparison.see(json::parse(answer));
    return comparison.faults({});
  };
  using Faults = std::set<std::string>;
  EXPECT_EQ(faults_of(R"({"a": 1, "b": 2, "c": [{"d": {"any name": 0.5, "e": null}}]})"), Faults{});
  EXPECT_EQ(faults_of(R"({"a": 1, "b": 2, "c": [{"d": {"e": "inf"}, "f": 1}]})"), Faults{"c[].f is not on the page"});
  EXPECT_EQ(faults_of(R"({"a": 1, "c": [{"d": {"e": 1}}]})"), Faults{"b is on the page and in no answer"});
  EXPECT_EQ(faults_of(R"({"a": 1, "b": true, "c": [{"d": {"e": 1}}]})"), Faults{"b is true, the page says integer"});
}

}  // namespace
}  // namespace ampcheck::testing
