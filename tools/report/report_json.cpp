// SPDX-License-Identifier: Apache-2.0
// Schema ampcheck.check/1. Numbers whose bits matter are hexadecimal floats in strings; no NaN or infinity stands bare.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "src/parallel.h"
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

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// An object as text, field by field: of 10,000 cases a tree of all of them takes as long as all the rest.
class ObjectText {
 public:
  explicit ObjectText(std::string& out) : out_(out) { out_ += '{'; }
  template <class T>
  void operator()(std::string_view key, const T& value) {
    this->key(key);
    if constexpr (std::is_integral_v<T>)
      whole(value);
    else if constexpr (std::is_convertible_v<T, std::string_view>)
      text(value);
    else
      out_ += dumped(value);
  }
  /// As json_number(); most are zero, which needs no tree.
  void number(std::string_view key, double value) {
    this->key(key);
    if (value == 0 && !std::signbit(value))
      out_ += "0.0";
    else
      out_ += dumped(json_number(value));
  }
  /// Where `write` puts a value.
  template <class Write>
  void with(std::string_view key, const Write& write) {
    this->key(key);
    write(out_);
  }
  void end() { out_ += '}'; }

 private:
  void whole(std::int64_t value) {
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  void key(std::string_view key) {
    if (out_.back() != '{') out_ += ',';
    (out_ += '"') += key;
    out_ += "\":";
  }
  void text(std::string_view value) {
    const bool plain =
        std::ranges::all_of(value, [](char c) { return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f; });
    if (plain)
      ((out_ += '"') += value) += '"';
    else
      out_ += dumped(std::string(value));
  }

  std::string& out_;
};

template <class List, class Write>
void put_list(std::string& out, const List& list, const Write& write) {
  out += '[';
  for (const auto& entry : list) {
    if (out.back() != '[') out += ',';
    write(entry);
  }
  out += ']';
}

void put_check(std::string& out, const CheckResult& check) {
  ObjectText object(out);
  object("name", check.name());
  object("verdict", name(check.verdict));
  object("code", name(check.code));
  object("dtype", name(check.dtype));
  object("compared", check.compared);
  object("blind", check.blind);
  object.number("visible", check.visible);
  object.with("power", [&](std::string& to) { to += check.power.empty() ? "[]" : dumped(Json(check.power)); });
  object("unusual", check.unusual);
  object("range", check.range);
  object("by_forms", check.by_forms);
  object("by_regrouping", check.by_regrouping);
  object("saturated", check.saturated);
  object("nans", check.nans);
  object("unjudged", check.unjudged);
  object("failed", check.failed);
  object.number("max_ratio", check.max_ratio);
  object("cause", check.cause);
  object("note", check.note);
  object.with("worst", [&](std::string& to) {
    put_list(to, check.worst,
             [&](const Element& element) { to += dumped(element_json(element, info(check.dtype).format)); });
  });
  if (const std::optional<ErrorMap>& map = check.map; map && check.failed > 0)
    object("map", Json{{"rows", map->rows},
                       {"columns", map->columns},
                       {"bin_rows", map->bin_rows},
                       {"bin_columns", map->bin_columns},
                       {"levels", map->levels}});
  object.end();
}

void put_case(std::string& out, const CaseResult& result) {
  ObjectText object(out);
  object("case", result.name);
  object("op", result.op);
  object("dtype", result.dtype);
  object("verdict", name(result.verdict));
  object("code", name(result.code));
  object("note", result.note);
  object("unjudged", result.unjudged());
  object.number("seconds", result.seconds);
  object.with("checks", [&](std::string& to) {
    put_list(to, result.checks, [&](const CheckResult& check) { put_check(to, check); });
  });
  if (!result.plugin.empty()) object("plugin", result.plugin);
  if (!result.smallest.empty()) object("smallest", result.smallest);
  if (!result.values.empty()) object("values", result.values);
  if (!result.lines.empty()) object("lines", lines_json(result.lines));
  object.end();
}

/// All cases as text, several at a time, each behind `before`; the first one behind `first`.
void put_cases(std::string& out, const Report& report, std::string_view first, std::string_view before) {
  constexpr std::size_t kPiece = 32, kPieces = 64;  // of so many cases; so many at a time
  const std::size_t all = report.cases.size(), start = out.size();
  std::vector<std::string> pieces(kPieces);
  for (std::size_t from = 0; from < all; from += kPiece * kPieces) {
    parallel_for(static_cast<std::int64_t>(kPieces), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
        pieces[k].clear();
        const std::size_t at = from + k * kPiece;
        for (std::size_t i = at; i < std::min(at + kPiece, all); ++i)
          put_case(pieces[k] += i == 0 ? first : before, report.cases[i]);
      }
    });
    for (const std::string& piece : pieces) out += piece;
    if (from == 0 && all > kPiece * kPieces)  // a text that grows is copied again and again
      out.reserve(start + (out.size() - start) / (kPiece * kPieces) * (all + all / 8));
  }
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
  put_cases(text, report, "\n", ",\n");
  return std::move(text += "\n]}\n");
}

std::string jsonl_report(const Report& report, const RunFacts&) {
  std::string out;
  put_cases(out, report, "", "\n");
  return std::move(out.empty() ? out : out += '\n');
}

}  // namespace ampcheck::tools
