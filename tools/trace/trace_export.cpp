// SPDX-License-Identifier: Apache-2.0
// A trace as CSV and as JSON.
#include <fmt/format.h>

#include "tools/report/json.h"
#include "tools/trace/clip_text.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

/// A field as RFC 4180 has it: layers may be named anything.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

}  // namespace

std::string trace_csv(const Trace& trace) {
  std::string out =
      "step,seq,phase,cast,op,layer,tensor,dtype,scale,elements,zero,subnormal,inf,nan,amax,amin,nonzero,flushed,"
      "overflowed,subnormal_loss,saturated,bias,bias_z,local_error,carried_error,loss_error,flipped,undecided,intended,"
      "stagnant,role,rank,from,headroom,footroom,scale_low,scale_high,cancelled,most_cancelled,copy_stagnant,second_"
      "moment_zero,epsilon_zero";
  std::map<std::string, std::map<std::pair<int, int>, double>> moves;  // by parameter, step and seq
  std::vector<std::string> parameters;
  for (const TracedGradient& g : trace.gradients) {
    auto& own = moves[g.parameter];
    if (own.empty()) parameters.push_back(g.parameter);
    own[{g.step, -1}] = g.apart;
    for (const TracedGradient::Part& part : g.parts) own[{g.step, part.seq}] = part.moves;
  }
  for (const std::string& parameter : parameters) out += "," + field("gradient of " + parameter);
  out += '\n';
  const auto maybe = [](const std::optional<double>& v) { return v ? fmt::format("{}", *v) : std::string(); };
  const auto whole = [](const std::optional<int>& k) { return k ? fmt::format("{}", *k) : std::string(); };
  const ScaleWindows windows = scale_windows(trace);
  for (std::size_t line = 0; line < trace.tensors.size(); ++line) {
    const TracedTensor& t = trace.tensors[line];
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                       t.step, t.seq, t.phase, t.cast ? 1 : 0, field(t.op), field(t.layer), field(t.tensor),
                       name(t.dtype), t.scale, t.elements, t.zero, t.subnormal, t.inf, t.nan, t.amax, t.amin, t.nonzero,
                       t.flushed, t.overflowed, t.subnormal_loss, t.saturated, maybe(t.bias), maybe(t.bias_z),
                       maybe(t.local_error), maybe(t.carried_error), maybe(t.loss_error), t.flipped, t.undecided,
                       t.intended, t.stagnant, t.role);
    out += fmt::format(",{},{},{},{},{},{}", t.rank, t.from, maybe(t.headroom()), maybe(t.footroom()),
                       whole(windows.by_line[line].low), whole(windows.by_line[line].high));
    out += fmt::format(",{},{},{},{},{}", maybe(t.cancelled), maybe(t.most_cancelled), t.copy_stagnant,
                       t.second_moment_zero, t.epsilon_zero);
    for (const std::string& parameter : parameters) {
      const auto& own = moves[parameter];
      const auto found = own.find({t.step, t.seq});
      out += found == own.end() ? "," : fmt::format(",{}", found->second);
    }
    out += '\n';
  }
  return out;
}

namespace {

Json maybe_json(const std::optional<double>& value) { return value ? json_number(*value) : Json(); }

Json tensor_json(const TracedSum& s) {
  const TracedTensor& t = s.sum;
  return {{"name", t.name()},
          {"op", t.op},
          {"layer", t.layer},
          {"phase", t.phase},
          {"cast", t.cast},
          {"tensor", t.tensor},
          {"dtype", name(t.dtype)},
          {"from", t.from},
          {"tensors", s.tensors},
          {"ranks", s.ranks},
          {"elements", t.elements},
          {"zero", t.zero},
          {"subnormal", t.subnormal},
          {"inf", t.inf},
          {"nan", t.nan},
          {"amax", json_number(t.amax)},
          {"amin", json_number(t.amin)},
          {"headroom", maybe_json(s.least_headroom)},
          {"footroom", maybe_json(s.least_footroom)},
          {"nonzero", t.nonzero},
          {"flushed", t.flushed},
          {"flushed_share", t.flushed_share()},
          {"overflowed", t.overflowed},
          {"subnormal_loss", t.subnormal_loss},
          {"saturated", t.saturated},
          {"bias", maybe_json(t.bias)},
          {"bias_z", maybe_json(t.bias_z)},
          {"worst_bias_z", json_number(s.worst_bias_z)},
          {"ulps", t.ulps},
          {"local_error", maybe_json(t.local_error)},
          {"carried_error", maybe_json(t.carried_error)},
          {"worst_step", s.worst_step},
          {"worst_flushed", s.worst_flushed},
          {"worst_local", json_number(s.worst_local)},
          {"worst_carried", json_number(s.worst_carried)},
          {"loss_error", maybe_json(t.loss_error)},
          {"norm_error", maybe_json(t.norm_error)},
          {"flipped", t.flipped},
          {"undecided", t.undecided},
          {"intended", t.intended},
          {"stagnant", t.stagnant},
          {"copy_stagnant", t.copy_stagnant},
          {"second_moment_zero", t.second_moment_zero},
          {"epsilon_zero", t.epsilon_zero},
          {"cancelled", maybe_json(t.cancelled)},
          {"most_cancelled", maybe_json(t.most_cancelled)},
          {"noise", t.noise},
          {"roles", s.roles},
          {"first_exponent", t.first_exponent},
          {"exponents", t.exponents}};
}

/// By step, of the gradients in 16 bits.
std::map<int, StepFlushes> flushes_by_step(const Trace& trace) {
  std::map<int, StepFlushes> out;
  for (const TracedTensor& t : trace.tensors) out[t.step].add(t);
  return out;
}

/// Exponents of two.
Json scales_json(const checks::train::LosslessScales& s) {
  return {{"low", s.low ? Json(*s.low) : Json()}, {"high", s.high ? Json(*s.high) : Json()}};
}

/// "run" as train's "loss_scale".
Json windows_json(const ScaleWindows& w) {
  const checks::train::ScaleAdvice& a = w.run;
  Json out = {{"run", Json()}, {"tensors", Json::array()}, {"steps", Json::array()}};
  if (a.known)
    out["run"] = {{"lossless_low", a.low},
                  {"lossless_high", a.high},
                  {"best", a.best},
                  {"best_share", a.best_share},
                  {"unscaled_share", a.unscaled_share},
                  {"flushes", a.flushes},
                  {"overflows_at", a.overflows_at},
                  {"overflows", a.overflows}};
  for (const ScaleWindows::OfTensor& t : w.tensors)
    out["tensors"].push_back({{"tensor", t.name},
                              {"exact", t.exact},
                              {"low", scales_json(t.run)["low"]},
                              {"high", scales_json(t.run)["high"]},
                              {"narrowest_step", t.narrowest_step},
                              {"narrowest", scales_json(t.narrowest)}});
  for (const auto& [step, scales] : w.by_step)
    out["steps"].push_back({{"step", step}, {"low", *scales.low}, {"high", *scales.high}, {"none", scales.none()}});
  return out;
}

Json step_json(const TracedStep& s, const StepFlushes& f) {
  Json out = {{"step", s.step},
              {"loss", json_number(s.loss)},
              {"fp64_loss", maybe_json(s.fp64_loss)},
              {"spread", maybe_json(s.spread)},
              {"apart", maybe_json(s.apart)},
              {"rounding", maybe_json(s.rounding)},
              {"loss_drift", maybe_json(s.loss_drift)},
              {"scale", json_number(s.scale)},
              {"scale_after", json_number(s.scale_after)},
              {"tracker", s.tracker},
              {"found_inf", s.found_inf},
              {"stepped", s.stepped},
              {"stagnant_share", json_number(s.stagnant_share)},
              {"nonzero", f.nonzero},
              {"flushed", f.flushed},
              {"worst", f.worst != nullptr ? Json(f.worst->name()) : Json()},
              {"worst_flushed", f.worst != nullptr ? f.worst->flushed_share() : 0.0}};
  add_clipping(out, {s.clipping, s.decay});
  for (const double loss : s.losses) out["losses"].push_back(json_number(loss));
  for (const auto& own : s.optimizers) out["optimizers"].push_back(optimizer_json(own));
  return out;
}

Json gradient_error_json(const Trace& trace) {
  Json out = Json::array();
  for (const ParameterShares& p : gradient_shares(trace)) {
    Json entry = {{"parameter", p.parameter}, {"error", json_number(p.error)},         {"size", json_number(p.size)},
                  {"noise", p.noise},         {"explained", json_number(p.explained)}, {"shares", Json::array()}};
    for (const auto& share : p.shares)
      entry["shares"].push_back({{"tensor", share.tensor.empty() ? Json() : Json(share.tensor)},
                                 {"rms", json_number(share.moves)},
                                 {"share", share.share},
                                 {"times_rounding", json_number(share.beyond)}});
    out.push_back(std::move(entry));
  }
  return out;
}

Json decisions_json(const std::vector<TracedSum>& sums) {
  Json out = Json::array();
  for (const TracedSum& s : sums)
    if (s.sum.decisions > 0)
      out.push_back({{"tensor", s.sum.name()},
                     {"rows", s.sum.decisions},
                     {"flipped", s.sum.flipped},
                     {"undecided", s.sum.undecided},
                     {"least_margin", json_number(s.sum.least_margin)},
                     {"mean_margin", json_number(s.sum.margins / static_cast<double>(s.sum.decisions))},
                     {"mean_error", json_number(s.sum.radii / static_cast<double>(s.sum.decisions))}});
  return out;
}

Json casts_json(const CastNotes& casts) {
  Json out = {{"kinds", casts.kinds}, {"repeated", Json::array()}};
  for (const CastNotes::Repeated& r : casts.repeated)
    out["repeated"].push_back({{"to", name(r.to)}, {"tensor", r.tensor}, {"ops", r.ops}});
  return out;
}

}  // namespace

void StepFlushes::add(const TracedTensor& t) {
  if (!checks::train::is_gradient(t.phase_number()) || t.dtype == Dtype::fp32 || t.noise) return;
  nonzero += t.nonzero;
  flushed += t.flushed;
  if (t.flushed > 0 && (worst == nullptr || t.flushed_share() > worst->flushed_share())) worst = &t;
}

std::string trace_json(const Trace& trace, const std::vector<TracedSum>& sums) {
  Json out = {{"schema", "ampcheck.trace_summary/1"},
              {"model", trace.model},
              {"dtype", trace.dtype_text()},
              {"autocast", trace.autocast},
              {"autocast_tables", trace.autocast_tables},
              {"scaler", trace.scaler},
              {"seed", trace.seed},
              {"local_shadow", trace.local},
              {"carried_shadow", trace.carried},
              {"steps_wanted", trace.steps_wanted},
              {"torn", trace.torn},
              {"steps", Json::array()},
              {"tensors", Json::array()}};
  if (!trace.losses.empty()) out["losses"] = trace.losses;
  if (!trace.optimizers.empty()) out["optimizers"] = trace.optimizers;
  if (const auto& m = trace.missing)
    out["statistics_missing"] = {{"file", m->path},      {"first_step", m->first_step}, {"last_step", m->last_step},
                                 {"steps", m->steps},    {"tensors", m->tensors},       {"from_byte", m->from},
                                 {"cut_off", m->cut_off}};
  std::map<int, StepFlushes> flushes = flushes_by_step(trace);
  for (const TracedStep& s : trace.steps) out["steps"].push_back(step_json(s, flushes[s.step]));
  for (const TracedSum& s : sums) out["tensors"].push_back(tensor_json(s));
  out["loss_scales"] = windows_json(scale_windows(trace));
  out["loss_error"] = Json::array();
  for (const LossShare& share : loss_shares(trace, sums))
    out["loss_error"].push_back({{"tensor", share.from != nullptr ? Json(share.from->sum.name()) : Json()},
                                 {"rms", json_number(share.moves)},
                                 {"share", share.share}});
  out["norm_error"] = Json::array();
  for (const LossShare& share : norm_shares(trace, sums))
    out["norm_error"].push_back(
        {{"tensor", share.from->sum.name()}, {"rms", json_number(share.moves)}, {"share", share.share}});
  out["gradient_error"] = gradient_error_json(trace);
  out["decisions"] = decisions_json(sums);
  out["faults"] = Json::array();
  for (const TracedTensor& t : trace.tensors)
    if (t.role == "producer" || t.role == "killer")
      out["faults"].push_back({{"step", t.step}, {"rank", t.rank}, {"role", t.role}, {"tensor", t.name()}});
  out["casts"] = casts_json(cast_notes(trace));
  out["moved_late"] = Json::array();
  for (const TracedMove& m : trace.moves)
    out["moved_late"].push_back(
        {{"step", m.step}, {"what", m.what}, {"after", m.after}, {"launched", m.launched}, {"bytes", m.bytes}});
  out["dtypes"] = Json::array();
  for (const DtypeNote& note : dtype_notes(trace))
    out["dtypes"].push_back({{"kind", note.kind}, {"op", note.op}, {"text", note.text}});
  return json_text(out);
}

}  // namespace ampcheck::tools
