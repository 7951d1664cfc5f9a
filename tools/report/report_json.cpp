// SPDX-License-Identifier: Apache-2.0
// Schema ampcheck.check/1. Numbers whose bits matter are hexadecimal floats in strings; no NaN or infinity stands bare.
#include <nlohmann/json.hpp>

#include "tools/report/device_word.h"
#include "tools/report/json.h"
#include "tools/report/line_table.h"
#include "tools/report/numbers.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

Json element_json(const Element& element, const FloatFormat* format) {
  const auto bits = [&](std::uint64_t code) { return format ? hex_bits(*format, code) : hex_bits(kFp64, code); };
  return {{"index", element.index},
          {"got", hex_float(element.got)},
          {"want", hex_float(element.want)},
          {"got_bits", bits(element.got_bits)},
          {"want_bits", bits(element.want_bits)},
          {"ulp", json_number(element.ulp)},
          {"interval", {hex_float(element.low), hex_float(element.high)}},
          {"interval_from", element.interval_from}};
}

Json check_json(const CheckResult& check) {
  Json worst = Json::array();
  for (const Element& element : check.worst) worst.push_back(element_json(element, info(check.dtype).format));
  Json out = {{"name", check.name()},
              {"verdict", name(check.verdict)},
              {"code", name(check.code)},
              {"dtype", name(check.dtype)},
              {"compared", check.compared},
              {"blind", check.blind},
              {"visible", json_number(check.visible)},
              {"power", check.power},
              {"unusual", check.unusual},
              {"range", check.range},
              {"by_forms", check.by_forms},
              {"by_regrouping", check.by_regrouping},
              {"saturated", check.saturated},
              {"nans", check.nans},
              {"unjudged", check.unjudged},
              {"failed", check.failed},
              {"max_ratio", json_number(check.max_ratio)},
              {"cause", check.cause},
              {"note", check.note},
              {"worst", std::move(worst)}};
  if (const std::optional<ErrorMap>& map = check.map; map && check.failed > 0)
    out["map"] = {{"rows", map->rows},
                  {"columns", map->columns},
                  {"bin_rows", map->bin_rows},
                  {"bin_columns", map->bin_columns},
                  {"levels", map->levels}};
  return out;
}

Json case_json(const CaseResult& result) {
  Json checks = Json::array();
  for (const CheckResult& check : result.checks) checks.push_back(check_json(check));
  Json out = {{"case", result.name},           {"op", result.op},
              {"dtype", result.dtype},         {"verdict", name(result.verdict)},
              {"code", name(result.code)},     {"note", result.note},
              {"unjudged", result.unjudged()}, {"seconds", json_number(result.seconds)},
              {"checks", std::move(checks)}};
  if (!result.plugin.empty()) out["plugin"] = result.plugin;
  if (!result.smallest.empty()) out["smallest"] = result.smallest;
  if (!result.values.empty()) out["values"] = result.values;
  if (!result.lines.empty()) out["lines"] = lines_json(result.lines);
  return out;
}

Json summary_json(const Report& report, const RunFacts& facts) {
  const Totals totals = totals_of(report);
  return {{"cases", totals.cases},      {"passed", totals.passed},     {"failed", totals.failed},
          {"skipped", totals.skipped},  {"elements", totals.elements}, {"blind", totals.blind},
          {"unusual", totals.unusual},  {"planned", facts.planned},    {"interrupted", report.interrupted},
          {"sampled", totals.sampled},  {"unjudged", totals.unjudged}, {"open", totals.open},
          {"repeated", totals.repeated}};
}

}  // namespace

Json environment_json(const BuildFacts& build, const MachineFacts& machine) {
  return {{"version", build.version},
          {"compiler", build.compiler},
          {"cuda_build", build.cuda},
          {"cuda_version", build.cuda_version},
          {"cpu", machine.cpu},
          {"simd", machine.simd},
          {"simd_targets", machine.simd_targets},
          {"threads", machine.threads}};
}

std::string json_text(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string json_report(const Report& report, const RunFacts& facts) {
  Json out = {{"schema", "ampcheck.check/1"}, {"summary", summary_json(report, facts)}};
  out["seconds"] = json_number(report.seconds);
  out["environment"] = environment_json(facts.build, facts.machine);
  out["environment"]["device"] = device_word(facts.device);
  out["environment"]["device_text"] = facts.device_text;
  out["certificates"] = Json::array();
  for (const Certificate& c : report.certificates)
    out["certificates"].push_back({{"op", c.op},
                                   {"digits", json_number(c.digits)},
                                   {"error_ratio", json_number(c.error_ratio)},
                                   {"points", c.points},
                                   {"kinks", c.kinks},
                                   {"variants", c.variants},
                                   {"conventions", c.conventions}});
  out["coverage"] = Json::array();
  for (const auto& [op, contributions] : report.coverage) {
    Json primitives = Json::array();
    for (const Contribution& c : contributions)
      primitives.push_back(
          {{"primitive", c.primitive}, {"share", json_number(c.share)}, {"visible", c.share >= kVisibleShare}});
    out["coverage"].push_back({{"op", op}, {"primitives", std::move(primitives)}});
  }
  out["notes"] = report.notes;
  out["variants"] = variants_json(facts.variants);
  std::string text = json_text(out);
  text.resize(text.size() - 3);  // "\n}\n": the cases follow, one per line, without a tree of all of them in memory
  text += ",\n  \"cases\": [";
  for (std::size_t i = 0; i < report.cases.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + case_json(report.cases[i]).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text + "\n]}\n";
}

std::string jsonl_report(const Report& report, const RunFacts&) {
  std::string out;
  for (const CaseResult& result : report.cases)
    out += case_json(result).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return out;
}

}  // namespace ampcheck::tools
