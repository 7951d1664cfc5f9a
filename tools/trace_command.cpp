// SPDX-License-Identifier: Apache-2.0
// `ampcheck trace FILE`: what a recorded training run met, as tables, CSV, JSON or one HTML file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/error.h"
#include "tools/commands.h"
#include "tools/json.h"
#include "tools/numbers.h"
#include "tools/output.h"
#include "tools/trace_file.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kRows = 12;

std::string error_text(const std::optional<double>& error) { return error ? rounded_decimal(*error, 2) : "-"; }

/// The worst first: by share flushed, then by local error.
std::vector<const TracedSum*> worst_first(const std::vector<TracedSum>& sums) {
  std::vector<const TracedSum*> out;
  for (const TracedSum& s : sums)
    if (s.sum.phase == "forward" || s.sum.phase == "backward") out.push_back(&s);
  std::stable_sort(out.begin(), out.end(), [](const TracedSum* a, const TracedSum* b) {
    if (a->sum.overflowed != b->sum.overflowed) return a->sum.overflowed > b->sum.overflowed;
    if (a->sum.flushed_share() != b->sum.flushed_share()) return a->sum.flushed_share() > b->sum.flushed_share();
    return a->worst_local > b->worst_local;
  });
  return out;
}

std::string ops_table(const std::vector<TracedSum>& sums, const Style& style) {
  std::string out = fmt::format("  {}{:<52}{:>6}{:>10}{:>10}{:>10}{:>11}{:>11}{:>10}{}\n", style.bold, "tensor", "dtype", "flushed", "at worst", "overflow", "error here", "inherited", "headroom", style.reset);
  const auto worst = worst_first(sums);
  for (std::size_t i = 0; i < std::min(kRows, worst.size()); ++i) {
    const TracedSum& s = *worst[i];
    out += fmt::format("  {:<52}{:>6}{:>10}{:>10}{:>10}{:>11}{:>11}{:>10}\n", s.sum.name(), name(s.sum.dtype), percent(s.sum.flushed_share()), percent(s.worst_flushed), grouped(s.sum.overflowed),
                       error_text(s.sum.local_error), error_text(s.sum.carried_error), s.has_headroom ? fmt::format("2^{:.1f}", s.least_headroom) : "-");
  }
  if (worst.size() > kRows) out += fmt::format("  ... and {} more (--csv has all)\n", worst.size() - kRows);
  return out;
}

std::string parameters_table(const std::vector<TracedSum>& sums, const Style& style) {
  std::string out;
  for (const TracedSum& s : sums) {
    if (s.sum.phase != "optimizer") continue;
    if (out.empty()) out = fmt::format("\n  {}{:<52}{:>12}{:>14}{}\n", style.bold, "parameter", "stagnant", "from fp64", style.reset);
    out += fmt::format("  {:<52}{:>12}{:>14}\n", s.sum.op, s.sum.intended > 0 ? percent(static_cast<double>(s.sum.stagnant) / static_cast<double>(s.sum.intended)) : "-", error_text(s.sum.carried_error));
  }
  return out;
}

/// Where the loss's error comes from: to first order, per op, and what had come apart in earlier steps.
std::string loss_text(const Trace& trace, const std::vector<TracedSum>& sums, const Style& style) {
  const std::vector<LossShare> shares = loss_shares(trace, sums);
  if (shares.empty()) return "";
  std::string out = fmt::format("\n  {}{:<52}{:>16}{:>10}{}\n", style.bold, "moves the loss, by its fp64 gradient", "rms per step", "share", style.reset);
  const auto row = [&](const LossShare& s, const std::string& what) { out += fmt::format("  {:<52}{:>16}{:>10}\n", what, rounded_decimal(s.moves, 2), percent(s.share)); };
  for (std::size_t i = 1; i < std::min<std::size_t>(shares.size(), 7); ++i) row(shares[i], shares[i].from->sum.name());
  row(shares.front(), "(weights apart since earlier steps)");
  const std::vector<LossShare> norm = norm_shares(trace, sums);
  if (!norm.empty()) out += fmt::format("\n  {}{:<52}{:>16}{:>10}{}\n", style.bold, "moves the norm of the gradient", "rms per step", "share", style.reset);
  for (std::size_t i = 0; i < std::min<std::size_t>(norm.size(), 6); ++i) row(norm[i], norm[i].from->sum.name());
  return out;
}

/// The tensors whose errors are more than rounding, by the parameters whose gradients they move by that much.
std::string beyond_text(const std::vector<ParameterShares>& gradients) {
  std::map<std::string, std::pair<double, std::string>> by_tensor;
  for (const ParameterShares& p : gradients)
    for (const auto& share : p.shares) {
      if (p.noise || share.beyond <= 1) continue;
      auto& [most, names] = by_tensor[share.tensor];
      most = std::max(most, share.beyond), names += (names.empty() ? "" : ", ") + p.parameter;
    }
  std::string out;
  for (const auto& [tensor, what] : by_tensor) out += fmt::format("More than one rounding of its elements could: {} ({} x), in the gradient of {}\n", tensor, rounded_decimal(what.first, 2), what.second);
  return out;
}

/// Which op's error is in which parameter's gradient.
std::string gradients_text(const Trace& trace, const Style& style) {
  const std::vector<ParameterShares> gradients = gradient_shares(trace);
  if (gradients.empty()) return "";
  std::string out = fmt::format("\n  {}{:<32}{:>10}   {:<52}{:>8}{:>12}{}\n", style.bold, "gradient of", "error", "moved most by", "share", "all explain", style.reset);
  for (std::size_t i = 0; i < std::min(kRows, gradients.size()); ++i) {
    const ParameterShares& p = gradients[i];
    const bool known = !p.shares.empty() && !p.noise;
    out += fmt::format("  {:<32}{:>10}   {:<52}{:>8}{:>12}\n", p.parameter, p.noise ? "-" : rounded_decimal(p.error / p.size, 2), !known ? "-" : p.shares.front().tensor.empty() ? "(weights apart since earlier steps)" : p.shares.front().tensor,
                       known ? percent(p.shares.front().share) : "-", known ? percent(p.explained) : "-");
  }
  if (gradients.size() > kRows) out += fmt::format("  ... and {} more (--json has all)\n", gradients.size() - kRows);
  return out + beyond_text(gradients);
}

std::string decisions_text(const std::vector<TracedSum>& sums) {
  std::string out;
  for (const TracedSum& s : sums) {
    const TracedTensor& t = s.sum;
    if (t.decisions == 0) continue;
    const auto n = static_cast<double>(t.decisions);
    out += fmt::format("\nDecisions by argmax of {}: {} of {} differ from fp64, {} could (the two largest no further apart than twice the error); margin {} in the mean, {} at least, error {}\n", t.name(),
                       percent(static_cast<double>(t.flipped) / n), grouped(t.decisions), percent(static_cast<double>(t.undecided) / n), rounded_decimal(t.margins / n, 2), rounded_decimal(t.least_margin, 2), rounded_decimal(t.radii / n, 2));
  }
  return out;
}

/// At most kRows rows, each over as many steps.
std::string time_table(const Trace& trace, const Style& style) {
  std::string out = fmt::format("\n  {}{:<13} {:>9} {:>9} {:>9} {:>6} {:>9}   {}{}\n", style.bold, "steps", "loss", "fp64", "scale", "skips", "flushed", "worst tensor", style.reset);
  const std::size_t count = trace.steps.size(), rows = std::min(kRows, count);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t begin = row * count / rows, end = (row + 1) * count / rows;
    const TracedStep &first = trace.steps[begin], &last = trace.steps[end - 1];
    std::int64_t skips = 0, nonzero = 0, flushed = 0;
    for (std::size_t i = begin; i < end; ++i) skips += !trace.steps[i].stepped;
    const TracedTensor* worst = nullptr;
    for (const TracedTensor& t : trace.tensors) {
      if (t.step < first.step || t.step > last.step || t.phase != "backward" || t.dtype == Dtype::fp32) continue;
      nonzero += t.nonzero, flushed += t.flushed;
      if (t.flushed > 0 && (worst == nullptr || t.flushed_share() > worst->flushed_share())) worst = &t;
    }
    out += fmt::format("  {:<13} {:>9} {:>9} {:>9} {:>6} {:>9}   {}\n", first.step == last.step ? std::to_string(first.step + 1) : fmt::format("{}-{}", first.step + 1, last.step + 1),
                       rounded_decimal(last.loss, 4), last.fp64_loss ? rounded_decimal(*last.fp64_loss, 4) : "-", rounded_decimal(last.scale, 6), skips,
                       nonzero > 0 ? percent(static_cast<double>(flushed) / static_cast<double>(nonzero)) : "-", worst != nullptr ? fmt::format("{} {}", worst->name(), percent(worst->flushed_share())) : "");
  }
  return out;
}

std::string faults_text(const Trace& trace) {
  constexpr int kShown = 8;
  std::string out;
  int seen = 0;
  for (const TracedTensor& t : trace.tensors)
    if ((t.role == "producer" || t.role == "killer") && ++seen <= kShown) out += fmt::format("  step {:<6} {:<10} {}\n", t.step + 1, t.role, t.name());
  if (seen > kShown) out += fmt::format("  ... and {} more (--csv has all)\n", seen - kShown);
  return out.empty() ? out : "\nNon-finite values:\n" + out;
}

/// Dtypes of the backward pass of the first step looked at: what its ops wrote and what was cast.
std::string backward_dtypes_text(const Trace& trace) {
  std::map<std::string, int> written, casts;
  int tensors = 0;
  for (const TracedTensor& t : trace.tensors) {
    if (t.step != trace.tensors.front().step || t.phase != "backward") continue;
    ++tensors, ++written[name(t.dtype)];
    if (t.cast) ++casts[t.from + " to " + name(t.dtype)];
  }
  if (casts.empty()) return "";
  const auto list = [](const std::map<std::string, int>& kinds) {
    std::string out;
    for (const auto& [what, count] : kinds) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
    return out;
  };
  return fmt::format("Casts in a backward pass: {}; of the {} tensors that it writes: {}\n", list(casts), tensors, list(written));
}

/// Casts of the first step looked at, and which tensors are cast more than once: autocast keeps the casts of weights alone.
std::string casts_text(const Trace& trace) {
  std::map<std::string, int> kinds;
  std::map<std::pair<int, Dtype>, std::vector<const TracedTensor*>> by_source;
  for (const TracedTensor& t : trace.tensors) {
    if (t.step != trace.tensors.front().step || !t.cast || t.phase != "forward") continue;
    ++kinds[t.from + " to " + name(t.dtype)];
    by_source[{t.source, t.dtype}].push_back(&t);
  }
  std::string out;
  for (const auto& [what, count] : kinds) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  if (out.empty()) return out;
  out = "\nCasts in a forward pass: " + out + "\n" + backward_dtypes_text(trace);
  for (const auto& [source, casts] : by_source) {
    if (casts.size() < 2) continue;
    std::string ops;
    for (const TracedTensor* t : casts) ops += fmt::format("{}{}", ops.empty() ? "" : ", ", t->op);
    out += fmt::format("  one tensor cast to {} {} times: the input '{}' of {}\n", name(source.second), casts.size(), casts.front()->tensor, ops);
  }
  return out;
}

std::string dtypes_text(const Trace& trace) {
  const std::vector<DtypeNote> notes = dtype_notes(trace);
  std::string out;
  for (std::size_t i = 0; i < std::min(kRows, notes.size()); ++i) out += fmt::format("  {:<18}{}\n", notes[i].op, notes[i].text);
  if (notes.size() > kRows) out += fmt::format("  ... and {} more (--json has all)\n", notes.size() - kRows);
  return out.empty() ? out : "\nDtypes that autocast chose by itself:\n" + out;
}

std::string text_of(const Trace& trace, const std::vector<TracedSum>& sums, const Style& style) {
  std::string out = fmt::format("{}{} in {}, scaler {}, seed {}: {} of {} steps, {} tensors{}{}\n", style.bold, trace.model, trace.dtype, trace.scaler, trace.seed, trace.steps.size(), trace.steps_wanted,
                                grouped(std::ssize(trace.tensors)), trace.torn ? "; the last line is cut off" : "", style.reset);
  if (trace.steps.empty()) return out;
  return out + "\n" + ops_table(sums, style) + loss_text(trace, sums, style) + gradients_text(trace, style) + decisions_text(sums) + parameters_table(sums, style) + time_table(trace, style) + faults_text(trace) + casts_text(trace) + dtypes_text(trace);
}

/// A field as RFC 4180 has it: layers may be named anything.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

/// One row for each tensor of each step; of each parameter a column: what moved its gradient, in the first row of that name in the step.
std::string csv_of(const Trace& trace) {
  std::string out = "step,seq,phase,cast,op,layer,tensor,dtype,scale,elements,zero,subnormal,inf,nan,amax,amin,nonzero,flushed,overflowed,subnormal_loss,saturated,bias,bias_z,local_error,carried_error,loss_error,flipped,undecided,intended,stagnant,role,rank,from,headroom";
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
  for (const TracedTensor& t : trace.tensors) {
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", t.step, t.seq, t.phase, t.cast ? 1 : 0, field(t.op), field(t.layer), field(t.tensor), name(t.dtype), t.scale, t.elements, t.zero,
                       t.subnormal, t.inf, t.nan, t.amax, t.amin, t.nonzero, t.flushed, t.overflowed, t.subnormal_loss, t.saturated, maybe(t.bias), maybe(t.bias_z), maybe(t.local_error), maybe(t.carried_error), maybe(t.loss_error), t.flipped, t.undecided, t.intended, t.stagnant, t.role);
    out += fmt::format(",{},{},{}", t.rank, t.from, maybe(t.headroom()));
    for (const std::string& parameter : parameters) {
      const auto& own = moves[parameter];
      const auto found = own.find({t.step, t.seq});
      out += found == own.end() ? "," : fmt::format(",{}", found->second);
    }
    out += '\n';
  }
  return out;
}

Json maybe_json(const std::optional<double>& value) { return value ? json_number(*value) : Json(); }

std::string json_of(const Trace& trace, const std::vector<TracedSum>& sums) {
  Json out = {{"schema", "ampcheck.trace_summary/1"}, {"model", trace.model}, {"dtype", trace.dtype}, {"scaler", trace.scaler}, {"seed", trace.seed}, {"torn", trace.torn}, {"steps", Json::array()},
              {"tensors", Json::array()}};
  for (const TracedStep& s : trace.steps)
    out["steps"].push_back({{"step", s.step}, {"loss", json_number(s.loss)}, {"fp64_loss", maybe_json(s.fp64_loss)}, {"scale", json_number(s.scale)}, {"found_inf", s.found_inf}, {"stepped", s.stepped}});
  for (const TracedSum& s : sums)
    out["tensors"].push_back({{"name", s.sum.name()}, {"op", s.sum.op}, {"layer", s.sum.layer}, {"phase", s.sum.phase}, {"cast", s.sum.cast}, {"tensor", s.sum.tensor}, {"dtype", name(s.sum.dtype)},
                              {"tensors", s.tensors}, {"elements", s.sum.elements}, {"zero", s.sum.zero}, {"subnormal", s.sum.subnormal}, {"inf", s.sum.inf}, {"nan", s.sum.nan},
                              {"amax", json_number(s.sum.amax)}, {"amin", json_number(s.sum.amin)}, {"nonzero", s.sum.nonzero}, {"flushed", s.sum.flushed}, {"overflowed", s.sum.overflowed},
                              {"local_error", maybe_json(s.sum.local_error)}, {"carried_error", maybe_json(s.sum.carried_error)}, {"worst_step", s.worst_step}, {"worst_flushed", s.worst_flushed},
                              {"intended", s.sum.intended}, {"stagnant", s.sum.stagnant}, {"first_exponent", s.sum.first_exponent}, {"exponents", s.sum.exponents}});
  out["loss_error"] = Json::array();
  for (const LossShare& share : loss_shares(trace, sums)) out["loss_error"].push_back({{"tensor", share.from != nullptr ? Json(share.from->sum.name()) : Json()}, {"rms", json_number(share.moves)}, {"share", share.share}});
  out["norm_error"] = Json::array();
  for (const LossShare& share : norm_shares(trace, sums)) out["norm_error"].push_back({{"tensor", share.from->sum.name()}, {"rms", json_number(share.moves)}, {"share", share.share}});
  out["gradient_error"] = Json::array();
  for (const ParameterShares& p : gradient_shares(trace)) {
    Json entry = {{"parameter", p.parameter}, {"error", json_number(p.error)}, {"size", json_number(p.size)}, {"noise", p.noise}, {"explained", json_number(p.explained)}, {"shares", Json::array()}};
    for (const auto& share : p.shares)
      entry["shares"].push_back({{"tensor", share.tensor.empty() ? Json() : Json(share.tensor)}, {"rms", json_number(share.moves)}, {"share", share.share}, {"times_rounding", json_number(share.beyond)}});
    out["gradient_error"].push_back(std::move(entry));
  }
  out["decisions"] = Json::array();
  for (const TracedSum& s : sums)
    if (s.sum.decisions > 0)
      out["decisions"].push_back({{"tensor", s.sum.name()}, {"rows", s.sum.decisions}, {"flipped", s.sum.flipped}, {"undecided", s.sum.undecided}, {"least_margin", json_number(s.sum.least_margin)},
                                  {"mean_margin", json_number(s.sum.margins / static_cast<double>(s.sum.decisions))}, {"mean_error", json_number(s.sum.radii / static_cast<double>(s.sum.decisions))}});
  out["dtypes"] = Json::array();
  for (const DtypeNote& note : dtype_notes(trace)) out["dtypes"].push_back({{"kind", note.kind}, {"op", note.op}, {"text", note.text}});
  return json_text(out);
}

}  // namespace

ExitCode trace_command(const Options& options) {
  for (const ReportFile& report : options.reports) require_writable(report.path);
  require_readable(options.words.front());
  const Trace trace = [&] {
    try {
      return read_trace(options.words.front());
    } catch (const Error& error) {  // no trace
      throw UsageError(error.what());
    }
  }();
  const std::vector<TracedSum> sums = summed(trace);
  for (const ReportFile& report : options.reports)
    write_file(report.path, report.format == ReportFile::Format::html ? trace_html(trace) : report.format == ReportFile::Format::csv ? csv_of(trace) : json_of(trace, sums));
  if (options.csv) write_stdout(csv_of(trace));
  else write_stdout(options.json ? json_of(trace, sums) : text_of(trace, sums, stdout_style()));
  return trace.steps.empty() ? ExitCode::nothing_ran : ExitCode::passed;
}

}  // namespace ampcheck::tools
