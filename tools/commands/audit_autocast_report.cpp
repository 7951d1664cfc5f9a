// SPDX-License-Identifier: Apache-2.0
// What all parts of `audit autocast` print.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/commands/audit_autocast.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

using namespace checks::autocast;

namespace {

constexpr std::size_t kPlaces = 6;

std::string places_text(const PolicyResult& r) {
  const bool actions = r.check->code == std::string_view("A9") || r.check->code == std::string_view("A10") ||
                       r.check->code == std::string_view("A11");
  std::string out;
  for (std::size_t i = 0; i < std::min(kPlaces, r.places.size()); ++i)
    out += (i == 0 ? "" : actions ? "; " : ", ") + r.places[i];
  if (r.places.size() > kPlaces) out += fmt::format(", ... and {} more", r.places.size() - kPlaces);
  return out;
}

/// Those that are there, each once.
std::string dtypes_text(const std::vector<Dtype>& dtypes) {
  std::string out;
  for (std::size_t i = 0; i < dtypes.size(); ++i)
    if (std::find(dtypes.begin(), dtypes.begin() + static_cast<std::ptrdiff_t>(i), dtypes[i]) ==
        dtypes.begin() + static_cast<std::ptrdiff_t>(i))
      out += (out.empty() ? "" : "+") + std::string(name(dtypes[i]));
  return out.empty() ? "-" : out;
}

std::string ops_text(const std::set<std::string>& ops) {
  std::string out;
  for (const std::string& op : ops) out += (out.empty() ? "" : ", ") + op;
  return out;
}

std::string error_text(double error) { return std::isfinite(error) ? rounded_decimal(error, 3) : "not finite"; }

std::string bytes_text(const Change& change) {
  const double ratio = static_cast<double>(change.bytes_after) / static_cast<double>(change.bytes_before) - 1;
  return fmt::format("{:+.1f} % bytes moved", 100 * ratio);
}

const char* bits_text(Bits bits) { return bits == Bits::same ? "same" : bits == Bits::differ ? "DIFFER" : "-"; }

}  // namespace

std::string results_text(const Results& results) {
  const Style style = stdout_style();
  std::string out;
  for (const PolicyResult& r : results.all()) {
    const char* const colour = r.outcome == Outcome::failed   ? style.red
                               : r.outcome == Outcome::weak   ? style.yellow
                               : r.outcome == Outcome::passed ? style.green
                                                              : style.dim;
    out += fmt::format("  {:<4}{:<20}{}{:<10}{} {}\n", r.check->code, r.check->name, colour, name(r.outcome),
                       style.reset, r.says.empty() ? r.check->asks : r.says);
    if (!r.places.empty()) out += fmt::format("{:36} {}\n", "", places_text(r));
  }
  return out;
}

std::string verdict_text(const Results& results, const std::string& what) {
  const Style style = stdout_style();
  const PolicyResult* const head = results.headline();
  std::string out = fmt::format("{}{}{}: {}; {} passed, {} weak, {} failed, {} not asked.\n",
                                head != nullptr ? style.red : style.green, head != nullptr ? "BROKEN" : "RIGHT",
                                style.reset, what, results.count(Outcome::passed), results.count(Outcome::weak),
                                results.count(Outcome::failed), results.count(Outcome::not_asked));
  if (head != nullptr) out += fmt::format("{} explains the others: {}.\n", head->check->code, head->says);
  return out;
}

Json results_json(const Results& results) {
  Json out = Json::array();
  for (const PolicyResult& r : results.all())
    out.push_back({{"code", r.check->code},
                   {"name", r.check->name},
                   {"asks", r.check->asks},
                   {"outcome", name(r.outcome)},
                   {"says", r.says},
                   {"places", r.places}});
  return out;
}

Json head_json(const Results& results, const std::string& kind, const std::string& target, const std::string& list) {
  const PolicyResult* const head = results.headline();
  return {{"schema", "ampcheck.audit_autocast/1"},
          {"kind", kind},
          {"target", target},
          {"list", list},
          {"passed", head == nullptr},
          {"code", head == nullptr ? "" : head->check->code},
          {"checks", results_json(results)}};
}

std::string rows_text(const std::vector<OpRow>& rows) {
  const Style style = stdout_style();
  std::string out =
      fmt::format("  {}{:<18} {:<19} {:<10} {:<9} {:<6} {:<7} {:>8} {:>9}  {}{}\n", style.bold, "op", "class", "handed",
                  "computes", "gives", "by hand", "rounding", "headroom", "in 16 bits", style.reset);
  for (const OpRow& row : rows) {
    const bool wrong =
        (row.due_computes && *row.due_computes != row.computes) || (row.due_gives && *row.due_gives != row.gives);
    const bool unlisted = row.policy == CastPolicy::unlisted || row.policy == CastPolicy::promote;
    out += fmt::format("  {:<18} {:<19} {:<10} {:<9} {:<6} {:<7} {:>8} {:>9}  {}\n", row.call,
                       row.enabled ? name(row.policy) : "(autocast off)", dtypes_text(row.handed), name(row.computes),
                       name(row.gives), bits_text(row.bits), row.excess ? fmt::format("{:.2f}", *row.excess) : "-",
                       row.headroom ? fmt::format("{:.1f}", *row.headroom) : "-",
                       wrong ? fmt::format("want {} and {}", name(*row.due_computes), name(*row.due_gives))
                             : (row.is_low() && unlisted ? row.hazard : ""));
  }
  while (out.find(" \n") != std::string::npos) out.erase(out.find(" \n"), 1);
  return out;
}

Json rows_json(const std::vector<OpRow>& rows) {
  const auto optional = [](const auto& value) { return value ? Json(json_number(*value)) : Json(nullptr); };
  const auto dtype = [](const std::optional<Dtype>& value) { return value ? Json(name(*value)) : Json(nullptr); };
  Json out = Json::array();
  for (const OpRow& row : rows) {
    Json handed = Json::array();
    for (const Dtype each : row.handed) handed.push_back(name(each));
    out.push_back({{"call", row.call},
                   {"op", row.op},
                   {"layer", row.layer},
                   {"class", name(row.policy)},
                   {"autocast", row.enabled},
                   {"handed", handed},
                   {"computes", name(row.computes)},
                   {"gives", name(row.gives)},
                   {"due_computes", dtype(row.due_computes)},
                   {"due_gives", dtype(row.due_gives)},
                   {"hazard", row.hazard},
                   {"headroom", optional(row.headroom)},
                   {"rounding", optional(row.excess)},
                   {"error", optional(row.error)},
                   {"overflowed", row.overflowed},
                   {"cast_elements", row.cast_elements},
                   {"cast_overflowed", row.cast_overflowed},
                   {"grad_elements", row.grad_elements},
                   {"grad_flushed", row.grad_flushed},
                   {"grad_overflowed", row.grad_overflowed},
                   {"bytes", row.bytes},
                   {"by_hand", row.bits == Bits::same     ? "same"
                               : row.bits == Bits::differ ? "differ"
                                                          : "not compared"}});
  }
  return out;
}

std::string advice_text(const NetAudit& audit) {
  std::string out = fmt::format("\nGradients err {} against fp64 (2-norm, relative); a batch moves {} bytes.\n",
                                error_text(audit.error), grouped(audit.bytes));
  if (audit.each.empty()) return out;
  out += "One op in fp32, tried:\n";
  for (std::size_t i = 0; i < std::min<std::size_t>(5, audit.each.size()); ++i) {
    const Change& change = audit.each[i];
    out += fmt::format("  {:<22} error {} to {}, {}\n", ops_text(change.ops), error_text(change.error_before),
                       error_text(change.error_after), bytes_text(change));
  }
  if (audit.suspected && audit.advice)
    return out + fmt::format(
                     "With these weights nothing goes wrong yet. What went wrong in the run, in fp32: {}, error "
                     "{} to {}, {}.\n",
                     ops_text(audit.advice->ops), error_text(audit.advice->error_before),
                     error_text(audit.advice->error_after), bytes_text(*audit.advice));
  if (!audit.ill) return out + "No change of the policy is needed.\n";
  if (!audit.advice)
    return out + fmt::format("No set of ops in fp32 cures what is wrong (sets tried: {}).\n", audit.tried);
  return out +
         fmt::format("The smallest change that cures what is wrong (sets tried: {}): {} in fp32, error {} to {}, {}.\n",
                     audit.tried, ops_text(audit.advice->ops), error_text(audit.advice->error_before),
                     error_text(audit.advice->error_after), bytes_text(*audit.advice));
}

std::string custom_text(const NetAudit& audit) {
  std::string out = audit.custom.empty() ? "" : "\nCustom ops under custom_fwd, tried:\n";
  for (const CustomTry& of : audit.custom) {
    const std::string what =
        fmt::format("{} {}", of.op, of.cast_inputs ? "cast_inputs=" + std::string(name(*of.cast_inputs)) : "as it is");
    out += of.refused.empty()
               ? fmt::format("  {:<34} computes in {}, gives {}, error {}\n", what, name(of.computes), name(of.gives),
                             error_text(of.error))
               : fmt::format("  {:<34} refused: {}\n", what, of.refused.substr(0, of.refused.find(" (")));
  }
  return out;
}

namespace {

Json custom_json(const CustomTry& of) {
  const bool ran = of.refused.empty();
  return {{"op", of.op},
          {"cast_inputs", of.cast_inputs ? Json(name(*of.cast_inputs)) : Json(nullptr)},
          {"refused", of.refused},
          {"computes", ran ? Json(name(of.computes)) : Json(nullptr)},
          {"gives", ran ? Json(name(of.gives)) : Json(nullptr)},
          {"error", ran ? json_number(of.error) : Json(nullptr)}};
}

Json change_json(const Change& change) {
  return {{"ops", change.ops},
          {"error_before", json_number(change.error_before)},
          {"error_after", json_number(change.error_after)},
          {"bytes_before", change.bytes_before},
          {"bytes_after", change.bytes_after}};
}

}  // namespace

void add_net_json(Json& out, const NetAudit& audit, int batches) {
  out["batches"] = batches;
  out["scale"] = audit.scale;
  out["halved"] = audit.halved;
  out["error"] = json_number(audit.error);
  out["bytes"] = audit.bytes;
  out["held"] = audit.held;
  out["tried"] = Json::array();
  for (const Change& change : audit.each) out["tried"].push_back(change_json(change));
  out["custom"] = Json::array();
  for (const CustomTry& of : audit.custom) out["custom"].push_back(custom_json(of));
  out["advice"] = audit.advice ? change_json(*audit.advice) : Json(nullptr);
}

}  // namespace ampcheck::tools
