// SPDX-License-Identifier: Apache-2.0
#include "tools/trace_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "src/amp/autocast_tables.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "tools/json.h"

namespace ampcheck::tools {

namespace {

double number(const Json& j) {
  if (!j.is_string()) return j.get<double>();
  const auto& text = j.get_ref<const std::string&>();
  return text == "nan" ? std::numeric_limits<double>::quiet_NaN() : text == "-inf" ? -INFINITY : INFINITY;
}

std::optional<double> maybe(const Json& j) { return j.is_null() ? std::nullopt : std::optional(number(j)); }

Dtype dtype_of(const Json& j) {
  const DtypeInfo* dtype = find_dtype(j.at("dtype").get<std::string>());
  if (dtype == nullptr || dtype->format == nullptr) throw Error("dtype " + j.at("dtype").dump());
  return dtype->dtype;
}

TracedTensor tensor_of(const Json& j) {
  TracedTensor t;
  t.step = j.at("step"), t.seq = j.at("seq"), t.source = j.at("source"), t.rank = j.value("rank", 0);
  t.phase = j.at("phase"), t.op = j.at("op"), t.layer = j.at("layer"), t.tensor = j.at("tensor"), t.role = j.at("role"), t.from = j.at("from");
  t.cast = j.at("cast");
  t.dtype = dtype_of(j);
  t.scale = number(j.at("scale")), t.amax = number(j.at("amax")), t.amin = number(j.at("amin"));
  t.elements = j.at("elements"), t.zero = j.at("zero"), t.subnormal = j.at("subnormal"), t.inf = j.at("inf"), t.nan = j.at("nan");
  t.nonzero = j.at("nonzero"), t.flushed = j.at("flushed"), t.overflowed = j.at("overflowed"), t.intended = j.at("intended"), t.stagnant = j.at("stagnant");
  t.first_exponent = j.at("exponents").at(0);
  t.exponents = j.at("exponents").at(1).get<std::vector<std::int64_t>>();
  t.subnormal_loss = j.at("subnormal_loss"), t.saturated = j.at("saturated");
  t.bias = maybe(j.at("bias")), t.bias_z = maybe(j.at("bias_z"));
  t.ulps = j.at("ulps").get<std::vector<std::int64_t>>();
  t.local_error = maybe(j.at("local_error")), t.carried_error = maybe(j.at("carried_error"));
  if (j.contains("loss_error")) t.loss_error = number(j.at("loss_error")), t.loss_error2 = *t.loss_error * *t.loss_error;
  if (j.contains("norm_error")) t.norm_error = number(j.at("norm_error")), t.norm_error2 = *t.norm_error * *t.norm_error;
  if (j.contains("range")) {
    const Json& r = j.at("range");
    t.range = TracedTensor::Range{number(r.at(0)), number(r.at(1)), r.at(2), r.at(3).get<std::vector<std::int64_t>>(), r.size() > 4 ? r.at(4).get<std::vector<std::int64_t>>() : std::vector<std::int64_t>()};
  }
  t.by_gradient = j.value("by_gradient", false);
  if (j.contains("exact_rms")) t.sizes.exact = number(j.at("exact_rms"));
  if (j.contains("fp64_rms")) t.sizes.fp64 = number(j.at("fp64_rms"));
  if (j.contains("cancelled")) t.cancelled = number(j.at("cancelled").at(0)), t.most_cancelled = number(j.at("cancelled").at(1));
  t.copy_stagnant = j.value("copy_stagnant", std::int64_t{0}), t.second_moment_zero = j.value("second_moment_zero", std::int64_t{0}), t.epsilon_zero = j.value("epsilon_zero", std::int64_t{0});
  if (j.contains("decisions")) {
    const Json& d = j.at("decisions");
    t.decisions = d.at(0), t.flipped = d.at(1), t.undecided = d.at(2), t.least_margin = number(d.at(3)), t.margins = number(d.at(4)), t.radii = number(d.at(5));
  }
  return t;
}

TracedStep step_of(const Json& j) {
  TracedStep s;
  s.step = j.at("step");
  s.loss = number(j.at("loss")), s.scale = number(j.at("scale")), s.scale_after = number(j.at("scale_after")), s.stagnant_share = number(j.at("stagnant_share"));
  s.fp64_loss = maybe(j.at("fp64_loss")), s.spread = maybe(j.at("spread"));
  if (j.contains("apart")) s.apart = maybe(j.at("apart")), s.rounding = maybe(j.at("rounding"));
  if (j.contains("loss_drift")) s.loss_drift = maybe(j.at("loss_drift"));
  s.found_inf = j.at("found_inf"), s.stepped = j.at("stepped"), s.tracker = j.value("tracker", 0);
  return s;
}

/// Tensors and gradients of steps that ended.
struct Whole {
  std::size_t tensors = 0, gradients = 0;
};

/// `first`: of the tensors of its step.
TracedGradient gradient_of(const Json& j, const Trace& trace, std::size_t first) {
  TracedGradient g;
  g.step = j.at("step"), g.parameter = j.at("parameter");
  g.error = number(j.at("error")), g.size = number(j.at("size")), g.apart = number(j.at("apart"));
  for (const Json& part : j.at("parts")) {
    const int seq = part.at(0);
    const std::size_t at = first + static_cast<std::size_t>(seq);
    if (seq < 0 || at >= trace.tensors.size() || trace.tensors[at].seq != seq) throw Error("seq " + part.at(0).dump());
    g.parts.push_back({trace.tensors[at].name(), seq, number(part.at(1)), number(part.at(2))});
  }
  return g;
}

void take_line(Trace& trace, const Json& j, Whole& whole) {
  if (j.contains("seq")) {
    trace.tensors.push_back(tensor_of(j));
  } else if (j.contains("moved_late")) {
    trace.moves.push_back({j.at("step"), j.at("moved_late"), j.at("after"), j.at("launched"), j.at("bytes")});
  } else if (j.contains("parameter")) {
    trace.gradients.push_back(gradient_of(j, trace, whole.tensors));
  } else if (j.contains("loss")) {
    const TracedStep step = step_of(j);
    if (trace.steps.empty() || step.step > trace.steps.back().step) trace.steps.push_back(step);  // else one before a fault, which is known
    whole = {trace.tensors.size(), trace.gradients.size()};
  } else {
    if (j.at("schema") != "ampcheck.trace/1") throw Error("schema " + j.at("schema").dump());
    trace.model = j.at("model"), trace.dtype = name(dtype_of(j)), trace.scaler = j.at("scaler");
    trace.autocast = j.value("autocast", trace.dtype == "fp32" ? "none" : "cuda");  // traces that do not say it are of that list
    trace.autocast_tables = j.value("autocast_tables", kAutocastTablesVersion);
    trace.seed = j.at("seed"), trace.steps_wanted = j.at("steps");
    trace.local = j.at("local"), trace.carried = j.at("carried");
  }
}

}  // namespace

std::string net_in(const std::string& model, const std::string& dtype, const std::string& autocast, const std::string& tables) {
  return model + " in " + dtype + (autocast == "none" ? ", no autocast" : ", autocast " + autocast + " (" + tables + ")");
}

std::string TracedTensor::name() const {
  std::string out = op;
  if (!layer.empty() && layer != op) out += " (" + layer + ")";
  out += " " + phase + " ";
  return out + (cast ? "cast of " + tensor + " to " + ampcheck::name(dtype) : tensor);
}

checks::train::Phase TracedTensor::phase_number() const {
  for (int p = 0; p < checks::train::kPhases; ++p)
    if (phase == checks::train::name(static_cast<checks::train::Phase>(p))) return static_cast<checks::train::Phase>(p);
  throw Error("phase " + phase);
}

std::optional<double> TracedTensor::headroom() const {
  if (amax == 0 || inf + nan > 0) return std::nullopt;
  return std::log2(format(dtype).max_finite() / amax);
}

std::optional<double> TracedTensor::footroom() const {
  if (amin == 0) return std::nullopt;
  return std::log2(amin / format(dtype).min_normal());
}

namespace {

/// Finds out which tensors are noise: by their sizes over all steps.
void mark_noise(Trace& trace) {
  struct Squares {
    checks::train::Phase phase;
    double exact = 0, fp64 = 0, elements = 0;
    bool has_exact = false, has_fp64 = false;
    checks::train::Sizes sizes() const {
      return {has_exact ? std::optional(std::sqrt(exact / elements)) : std::nullopt, has_fp64 ? std::optional(std::sqrt(fp64 / elements)) : std::nullopt};
    }
  };
  std::map<std::string, Squares> all;
  for (const TracedTensor& t : trace.tensors) {
    Squares& s = all.try_emplace(t.name(), Squares{t.phase_number()}).first->second;
    const auto n = static_cast<double>(t.elements);
    s.elements += n;
    if (t.sizes.exact) s.exact += *t.sizes.exact * *t.sizes.exact * n, s.has_exact = true;
    if (t.sizes.fp64) s.fp64 += *t.sizes.fp64 * *t.sizes.fp64 * n, s.has_fp64 = true;
  }
  checks::train::Noise noise;
  for (const auto& [name, s] : all) noise.add(s.phase, s.sizes());
  for (TracedTensor& t : trace.tensors) {
    const Squares& s = all.at(t.name());
    t.noise = noise.is(s.phase, s.sizes());
  }
}

}  // namespace

Trace read_trace(const std::string& path) {
  const std::string text = read_bytes(path, "trace");
  Trace trace;
  trace.path = path;
  std::size_t begin = 0;
  Whole whole;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) {
      trace.torn = true;
      break;
    }
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    try {
      take_line(trace, Json::parse(line), whole);
    } catch (const std::exception& error) {
      throw Error("[trace] " + path + " line " + std::to_string(number) + ", got " + error.what() + ", want a line of an ampcheck.trace/1 (ampcheck train --record writes it)");
    }
    if (number == 1 && trace.model.empty()) throw Error("[trace] " + path + " line 1, got another line, want the schema ampcheck.trace/1");
  }
  if (trace.model.empty()) throw Error("[trace] " + path + ", got an empty file, want an ampcheck.trace/1 (ampcheck train --record writes it)");
  if (!trace.steps.empty()) trace.steps_wanted = std::max(trace.steps_wanted, trace.steps.back().step + 1);  // earlier versions kept the first line of a run that went on
  trace.tensors.resize(whole.tensors), trace.gradients.resize(whole.gradients);  // what was written after the last whole step belongs to none
  std::stable_sort(trace.tensors.begin(), trace.tensors.end(), [](const TracedTensor& a, const TracedTensor& b) { return a.step < b.step; });
  mark_noise(trace);
  return trace;
}

std::vector<TracedSum> summed(const Trace& trace) {
  std::vector<TracedSum> out;
  std::map<std::string, std::size_t> known;
  struct Squares { double local = 0, carried = 0, bias = 0, variance = 0; int locals = 0, carrieds = 0; std::int64_t judged = 0; };
  const auto least = [](std::optional<double>& of, const std::optional<double>& value) {
    if (value) of = of ? std::min(*of, *value) : *value;
  };
  std::vector<Squares> squares;
  for (const TracedTensor& t : trace.tensors) {
    const auto [at, fresh] = known.try_emplace(t.name(), out.size());
    if (fresh) out.emplace_back().sum = t, squares.emplace_back();
    TracedSum& s = out[at->second];
    Squares& squared = squares[at->second];
    ++s.tensors;
    const double local = t.local_error.value_or(0), carried = t.carried_error.value_or(0);
    if (t.local_error && std::isfinite(local)) squared.local += local * local, ++squared.locals;
    if (t.carried_error && std::isfinite(carried)) squared.carried += carried * carried, ++squared.carrieds;
    if (t.flushed_share() > s.worst_flushed || (s.worst_flushed == 0 && local > s.worst_local)) s.worst_step = t.step;
    if (t.bias_z && std::fabs(*t.bias_z) > std::fabs(s.worst_bias_z)) s.worst_bias_z = *t.bias_z;
    s.worst_flushed = std::max(s.worst_flushed, t.flushed_share());
    s.worst_local = std::max(s.worst_local, local), s.worst_carried = std::max(s.worst_carried, carried);
    least(s.least_headroom, t.headroom()), least(s.least_footroom, t.footroom());
    s.ranks = std::max(s.ranks, t.rank + 1);
    if (t.role != "none") ++s.roles[t.role];
    if (t.bias && t.bias_z && std::isfinite(*t.bias)) {  // of the mean over all elements: sums, and variances of sums, add up
      constexpr std::size_t kBuckets = 18;               // up to 2^15 ulps, what lies beyond has no part in the bias
      const std::int64_t judged = std::accumulate(t.ulps.begin(), t.ulps.begin() + static_cast<std::ptrdiff_t>(std::min(kBuckets, t.ulps.size())), std::int64_t{0});
      const double sum = *t.bias * static_cast<double>(judged), deviation = *t.bias_z != 0 ? sum / *t.bias_z : 0;
      squared.bias += sum, squared.variance += deviation * deviation, squared.judged += judged;
    }
    s.cancellations += t.cancelled ? 1 : 0;
    if (fresh) continue;
    TracedTensor& sum = s.sum;
    if (t.cancelled) {
      sum.cancelled = sum.cancelled.value_or(0) + (*t.cancelled - sum.cancelled.value_or(0)) / s.cancellations;
      sum.most_cancelled = std::max(sum.most_cancelled.value_or(0), *t.most_cancelled);
    }
    sum.copy_stagnant += t.copy_stagnant, sum.second_moment_zero += t.second_moment_zero, sum.epsilon_zero += t.epsilon_zero;
    sum.elements += t.elements, sum.zero += t.zero, sum.subnormal += t.subnormal, sum.inf += t.inf, sum.nan += t.nan;
    sum.subnormal_loss += t.subnormal_loss, sum.saturated += t.saturated;
    sum.ulps.resize(std::max(sum.ulps.size(), t.ulps.size()), 0);
    for (std::size_t i = 0; i < t.ulps.size(); ++i) sum.ulps[i] += t.ulps[i];
    sum.nonzero += t.nonzero, sum.flushed += t.flushed, sum.overflowed += t.overflowed, sum.intended += t.intended, sum.stagnant += t.stagnant;
    sum.loss_error2 += t.loss_error2, sum.norm_error2 += t.norm_error2;
    if (t.norm_error) sum.norm_error = sum.norm_error.value_or(0) + *t.norm_error;
    if (t.loss_error) sum.loss_error = sum.loss_error.value_or(0) + *t.loss_error;
    if (t.decisions > 0) {
      sum.least_margin = sum.decisions > 0 ? std::min(sum.least_margin, t.least_margin) : t.least_margin;
      sum.decisions += t.decisions, sum.flipped += t.flipped, sum.undecided += t.undecided, sum.margins += t.margins, sum.radii += t.radii;
    }
    sum.amax = std::max(sum.amax, t.amax);
    if (t.amin > 0) sum.amin = sum.amin > 0 ? std::min(sum.amin, t.amin) : t.amin;
    if (t.exponents.empty()) continue;
    if (sum.exponents.empty()) {
      sum.first_exponent = t.first_exponent, sum.exponents = t.exponents;
      continue;
    }
    if (t.first_exponent < sum.first_exponent) {
      sum.exponents.insert(sum.exponents.begin(), static_cast<std::size_t>(sum.first_exponent - t.first_exponent), 0);
      sum.first_exponent = t.first_exponent;
    }
    const auto offset = static_cast<std::size_t>(t.first_exponent - sum.first_exponent);
    sum.exponents.resize(std::max(sum.exponents.size(), offset + t.exponents.size()), 0);
    for (std::size_t i = 0; i < t.exponents.size(); ++i) sum.exponents[offset + i] += t.exponents[i];
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (squares[i].locals > 0) out[i].sum.local_error = std::sqrt(squares[i].local / squares[i].locals);
    if (squares[i].carrieds > 0) out[i].sum.carried_error = std::sqrt(squares[i].carried / squares[i].carrieds);
    const auto& [local, carried, bias, variance, locals, carrieds, judged] = squares[i];
    if (judged > 0) out[i].sum.bias = bias / static_cast<double>(judged), out[i].sum.bias_z = bias == 0 ? 0 : bias / std::sqrt(variance);
  }
  return out;
}

std::vector<const TracedSum*> worst_first(const std::vector<TracedSum>& sums) {
  std::vector<const TracedSum*> out;
  for (const TracedSum& s : sums)
    if (s.sum.phase_number() <= checks::train::Phase::backward || s.sum.local_error || s.sum.carried_error || s.sum.overflowed > 0) out.push_back(&s);
  const auto noise = [](const TracedSum& s) { return s.sum.noise && s.sum.overflowed == 0; };
  const auto flushed = [](const TracedSum& s) { return checks::train::is_gradient(s.sum.phase_number()) ? s.sum.flushed_share() : 0; };
  std::stable_sort(out.begin(), out.end(), [&](const TracedSum* a, const TracedSum* b) {
    if (noise(*a) != noise(*b)) return noise(*b);
    if (a->sum.overflowed != b->sum.overflowed) return a->sum.overflowed > b->sum.overflowed;
    if (flushed(*a) != flushed(*b)) return flushed(*a) > flushed(*b);
    if (a->worst_local != b->worst_local) return a->worst_local > b->worst_local;
    return a->worst_carried > b->worst_carried;
  });
  return out;
}

namespace {

std::set<int> steps_looked_at(const Trace& trace) {
  std::set<int> out;
  for (const TracedTensor& t : trace.tensors) out.insert(t.step);
  return out;
}

/// From sums of squares over the steps; sorted from `first` on.
void finish(std::vector<LossShare>& shares, std::size_t steps, std::ptrdiff_t first) {
  double all = 0;
  for (const LossShare& share : shares) all += share.moves;
  for (LossShare& share : shares) share.share = all > 0 ? share.moves / all : 0, share.moves = std::sqrt(share.moves / static_cast<double>(steps));
  std::stable_sort(shares.begin() + first, shares.end(), [](const LossShare& a, const LossShare& b) { return a.share > b.share; });
}

}  // namespace

std::vector<LossShare> loss_shares(const Trace& trace, const std::vector<TracedSum>& sums) {
  const std::set<int> steps = steps_looked_at(trace);
  std::vector<LossShare> out = {{}};
  for (const TracedStep& s : trace.steps)
    if (s.loss_drift && steps.contains(s.step)) out.front().moves += *s.loss_drift * *s.loss_drift;
  for (const TracedSum& s : sums)
    if (s.sum.loss_error) out.push_back({&s, s.sum.loss_error2, 0});
  if (out.size() == 1) return {};
  finish(out, steps.size(), 1);
  return out;
}

std::vector<LossShare> norm_shares(const Trace& trace, const std::vector<TracedSum>& sums) {
  std::vector<LossShare> out;
  for (const TracedSum& s : sums)
    if (s.sum.norm_error) out.push_back({&s, s.sum.norm_error2, 0});
  finish(out, steps_looked_at(trace).size(), 0);
  return out;
}

std::vector<ParameterShares> gradient_shares(const Trace& trace) {
  std::vector<ParameterShares> out;
  std::map<std::string, std::map<std::string, ParameterShares::Share>> sums;  // of squares
  std::map<std::string, int> steps;
  std::map<std::string, double> errors;
  double largest = 0;
  for (const TracedGradient& g : trace.gradients) {
    const bool fresh = ++steps[g.parameter] == 1;
    if (fresh) out.emplace_back().parameter = g.parameter;
    ParameterShares& own = *std::find_if(out.begin(), out.end(), [&](const ParameterShares& p) { return p.parameter == g.parameter; });
    own.error += g.error * g.error, own.size += g.size * g.size;
    errors[g.parameter] += g.error, own.explained += g.apart;
    auto& of = sums[g.parameter];
    if (g.apart != 0) of[""].moves += g.apart * g.apart;
    for (const TracedGradient::Part& part : g.parts) {
      own.explained += part.moves;
      ParameterShares::Share& share = of[part.tensor];
      share.moves += part.moves * part.moves;
      if (part.moves != 0) share.beyond = std::max(share.beyond, part.rounding > 0 ? std::fabs(part.moves) / part.rounding : INFINITY);
    }
  }
  for (ParameterShares& p : out) {
    const auto n = static_cast<double>(steps[p.parameter]);
    p.error = std::sqrt(p.error / n), p.size = std::sqrt(p.size / n), largest = std::max(largest, p.size);
    p.explained = errors[p.parameter] > 0 ? p.explained / errors[p.parameter] : 0;
    double all = 0;
    for (const auto& [tensor, share] : sums[p.parameter]) all += share.moves;
    for (auto& [tensor, share] : sums[p.parameter]) p.shares.push_back({tensor, std::sqrt(share.moves / n), all > 0 ? share.moves / all : 0, share.beyond});
    std::stable_sort(p.shares.begin(), p.shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  }
  for (ParameterShares& p : out) p.noise = p.size <= kFp32.unit_roundoff() * largest;
  return out;
}

}  // namespace ampcheck::tools
