// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Sums replayed as a wrong kernel may add them: with fewer digits, in another order, without some terms.
#include "checks/explain/sum_replays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "checks/case/case_run.h"
#include "checks/case/form_comparison.h"
#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/explain/elsewhere.h"
#include "checks/explain/formula_change.h"
#include "checks/explain/launch_formats.h"
#include "checks/explain/median.h"
#include "checks/explain/odds.h"
#include "reference/replay/replay.h"
#include "src/elements.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Replays of one way to lose digits in a sum, rounded to storage.
struct LowSums {
  std::vector<std::vector<double>> replays;
};

/// Where digits get lost in a sum: at every addition, at every product and addition, between sums of parts of the
/// terms, or once it is added up.
enum class Lost { each, products, partial, whole };

/// `promising`: whether replays like the first one may explain anything; otherwise it stays alone.
LowSums low_sums(const reference::Recording& recording, const Leaves& leaves, reference::Expr target,
                 const FloatFormat& accumulator, Lost where, Dtype storage, std::span<const double> held,
                 const std::function<bool(const LowSums&)>& promising) {
  using reference::SumOrder;
  LowSums out;
  bool going = true;
  const auto add = [&](SumOrder order, int parts) {
    if (!going) return;
    std::vector<double> values =
        reference::replay(
            *recording.graph, leaves, {target},
            {.order = order, .accumulate = &accumulator, .products = where == Lost::products, .parts = parts})
            .front();
    for (std::size_t i = 0; i < held.size(); ++i) values[i] += held[i];
    if (!held.empty()) round_values(accumulator, RoundingMode{}, values, values);
    round_values(format(storage), RoundingMode{}, values, values);
    out.replays.push_back(std::move(values));
    if (out.replays.size() == 1) going = promising(out);
  };
  if (where == Lost::whole)
    add(SumOrder::sequential, -1);
  else if (where == Lost::partial)
    for (const int parts : {-2, -4, -8, 32}) add(SumOrder::sequential, parts);
  else
    for (const auto order : {SumOrder::sequential, SumOrder::lanes32, SumOrder::pairwise, SumOrder::reversed})
      add(order, 0);
  return out;
}

/// How well such sums explain the elements outside.
struct Fit {
  double size = 0;  ///< the typical size of the kernel's error in units of the replays' error; 0 if such sums would not
                    ///< leave the interval there
  double equal = 0;  ///< largest share of these elements that one replay gives, to an eighth of their error
  double same = 0;   ///< largest share of all elements that one replay gives, bit for bit
  bool better_than(const Fit& other) const {
    if (size == 0 || other.size == 0) return size > 0;
    const bool sure = equal >= 0.75, others = other.equal >= 0.75;
    if (sure || others) return equal + same > other.equal + other.same;
    return std::fabs(std::log(size)) < std::fabs(std::log(other.size));
  }
};

/// How much the relative errors of a row agree: 1 where all are one number, near 0 where they have nothing to do with
/// each other.
double coherence(const WrongTensor& wrong, const std::vector<double>& values) {
  const std::int64_t width =
      std::max<std::int64_t>(1, wrong.interval.shape.rank == 0 ? 1 : wrong.interval.shape.last());
  std::vector<double> rows;
  for (std::size_t k = 0; k < wrong.comparison.outside.size();) {
    const std::int64_t row = wrong.comparison.outside[k] / width;
    double together = 0, each = 0;
    std::int64_t count = 0;
    for (; k < wrong.comparison.outside.size() && wrong.comparison.outside[k] / width == row; ++k) {
      const auto i = static_cast<std::size_t>(wrong.comparison.outside[k]);
      const double error = values[i] / wrong.interval.value[i] - 1;
      if (std::isfinite(error)) {
        together += error;
        each += std::fabs(error);
        ++count;
      }
    }
    if (count >= 4 && each > 0) rows.push_back(std::fabs(together) / each);
  }
  return rows.empty() ? 1.0 : median(rows);
}

/// `share`: one element in so many must be outside in the replays too.
Fit fit_of(const LowSums& sums, const WrongTensor& wrong, std::int64_t share = 2) {
  std::int64_t also_outside = 0;
  std::vector<double> ratios;
  std::vector<std::int64_t> equal(sums.replays.size(), 0);
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    double square = 0;
    bool outside = false;
    const double off = std::fabs(wrong.got[i] - wrong.interval.value[i]);
    for (std::size_t k = 0; k < sums.replays.size(); ++k) {
      const double value = sums.replays[k][i], error = value - wrong.interval.value[i];
      square += error * error / static_cast<double>(sums.replays.size());
      const bool out = !admits(wrong.interval, at, value);
      outside |= out;
      equal[k] += out && std::fabs(wrong.got[i] - value) <= off / 8;
    }
    also_outside += outside;
    if (square > 0) ratios.push_back(off / std::sqrt(square));
  }
  const auto all = static_cast<std::int64_t>(wrong.comparison.outside.size());
  if (share * also_outside < all) return {};
  // What goes wrong in a row's sum goes wrong in all of the row.
  constexpr double kOneNumber = 0.8, kUnrelated = 0.5;
  if (coherence(wrong, sums.replays.front()) > kOneNumber && coherence(wrong, wrong.got) < kUnrelated) return {};
  std::int64_t same = 0;
  for (const std::vector<double>& replay : sums.replays) {
    std::int64_t here = 0;
    for (std::size_t i = 0; i < wrong.got.size(); ++i) here += wrong.got[i] == replay[i];
    same = std::max(same, here);
  }
  return {median(ratios), static_cast<double>(*std::max_element(equal.begin(), equal.end())) / static_cast<double>(all),
          static_cast<double>(same) / static_cast<double>(wrong.got.size())};
}

/// One way to replay a tensor: a form's graph, the leaves that are given, the node that is wanted.
struct Scope {
  const reference::Recording* recording;
  Leaves leaves;
  reference::Expr target;
};

/// Every sum in the declared form, and of a gradient also the backward's sums alone.
std::vector<Scope> scopes_of(CaseRun& run, std::size_t form, const Written& tensor, Pass pass) {
  const reference::Recording& recording = run.reference.recording(form);
  Scope scope{&recording, run.reference.leaves(form, pass == Pass::backward_at_saved ? Pass::backward : pass), {}};
  for (const auto& [name, node] : nodes_of(recording, pass))
    if (name == tensor.name) scope.target = node;
  if (!scope.target.defined()) return {};
  if (pass == Pass::forward || pass == Pass::jvp) return {scope};
  std::vector<Scope> out{scope, scope};
  give_forward(recording, out[1].leaves);
  return out;
}

bool multiplies_matrices(const Scope& scope) {
  const auto& nodes = scope.recording->graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const reference::Node& node) { return node.primitive == reference::Primitive::matmul; });
}

constexpr std::int64_t kLargestReplay = 1 << 18;  ///< elements; replays are scalar

}  // namespace

std::string dropped_terms(const WrongTensor& wrong) {
  if (wrong.tensor.shape.count() > kLargestReplay || wrong.run.accumulates(wrong.tensor.name)) return "";
  std::int64_t longest = 128;
  for (const auto& [symbol, extent] : wrong.run.call.dims) longest = std::max(longest, extent);
  for (const Scope& scope : scopes_of(wrong.run, 0, wrong.tensor, wrong.pass)) {
    const auto without = [&](int dropped) {
      std::vector<double> values = reference::replay(*scope.recording->graph, scope.leaves, {scope.target},
                                                     {.order = reference::SumOrder::sequential, .dropped = dropped})
                                       .front();
      round_values(format(wrong.tensor.dtype), RoundingMode{}, values, values);
      return values;
    };
    for (const int dropped : {-1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
      if (dropped > longest) break;
      const std::vector<double> values = without(dropped);
      // Nine of ten wrong elements reproduced to an ulp of storage, or to what rounding may do and a quarter of their
      // error, and wrong in the replay too: chance does not do that.
      std::int64_t same = 0, besides = -std::ssize(wrong.comparison.outside);
      for (std::int64_t at = 0; at < std::ssize(values); ++at)
        besides += !admits(wrong.interval, at, values[static_cast<std::size_t>(at)]);
      if (10 * besides > std::ssize(wrong.comparison.outside)) continue;  // the kernel is right where this is wrong
      for (const std::int64_t at : wrong.comparison.outside) {
        const double value = values[static_cast<std::size_t>(at)];
        const double wrote = wrong.got[static_cast<std::size_t>(at)];
        const double apart = std::fabs(wrote - value),
                     error = std::fabs(wrote - wrong.interval.value[static_cast<std::size_t>(at)]);
        const bool rounded = apart <= wrong.interval.radius[static_cast<std::size_t>(at)] && 4 * apart <= error;
        same += !admits(wrong.interval, at, value) &&
                (wrote == value || (std::isnan(wrote) && std::isnan(value)) || rounded ||
                 ulp_distance(format(wrong.tensor.dtype), wrote, value) <= 1);
      }
      if (10 * same < 9 * static_cast<std::int64_t>(wrong.comparison.outside.size())) continue;
      if (dropped > 0) return "a sum leaves out what follows the last full vector of " + std::to_string(dropped);
      return without(4) == values ? "a sum leaves out its last term, or what follows its last full vector"
                                  : "a sum leaves out its last term";  // one term is all that follows
    }
  }
  return "";
}

namespace {

/// A short accumulator loses nothing of sums of -1, 0 and 1. Whether the kernel is wrong there too, where such replays
/// are right.
bool wrong_at_exact_sums(const WrongTensor& wrong, std::size_t form, std::size_t scope, const FloatFormat& accumulator,
                         Lost where) {
  const Pass pass = wrong.pass == Pass::backward_at_saved ? Pass::backward : wrong.pass;
  OpCall call = wrong.run.call;
  call.range = "integers1";
  call.cotangent = "ones";
  if (wrong.pass == Pass::jvp || wrong.run.accumulates(wrong.tensor.name) || call.range == wrong.run.call.range ||
      is_file_range(wrong.run.call.range) || is_real_range(wrong.run.call.range))
    return false;
  RunOptions options = wrong.run.options;
  options.explain = options.power = options.relations = false;
  try {
    CaseRun there(wrong.run.op, call, options);
    const NamedValues& inputs = there.reference.inputs();
    LaunchResult result = there.run_forward(there.forward_tensors(inputs, 0));
    if (pass == Pass::backward) {
      const NamedValues& cotangents = there.cotangents(0);
      result = there.run_backward(there.backward_tensors(inputs, result, cotangents, 0));
    }
    const std::vector<double> got = to_doubles(result.written.at(wrong.tensor.name).view());
    const auto [interval, comparison] = compare_with_forms(there, wrong.tensor, pass, got);
    if (comparison.outside.empty()) return false;
    const Scope at = scopes_of(there, form, wrong.tensor, pass).at(scope);
    const LowSums low = low_sums(*at.recording, at.leaves, at.target, accumulator, where, wrong.tensor.dtype, {},
                                 [](const LowSums&) { return true; });
    for (const std::vector<double>& replay : low.replays)
      for (const std::int64_t i : comparison.outside)
        if (!admits(interval, i, replay[static_cast<std::size_t>(i)])) return false;
    return true;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception&) {  // the op has no such data, or fails otherwise there
    return false;
  }
}

/// A way to lose digits in a sum, and how well it explains the elements outside.
struct LowFit {
  Fit fit;
  LowSums sums;
  Dtype dtype = Dtype::bf16;
  Lost where = Lost::each;
  std::size_t form = 0, scope = 0;
};

/// Within a factor of four of a typical replay: far from a wrong sign or factor, and from a dropped term, whose errors
/// do not scale with the accumulator's roundoff.
bool of_that_size(const Fit& fit) { return fit.size > 0.25 && fit.size < 4; }

/// The sums in order and in 16 bits throughout, where that gives the kernel's numbers as surely as any change of the
/// formula could.
std::optional<LowFit> surely_low(const WrongTensor& wrong) {
  const std::size_t form = wrong.run.reference.forms().front();
  const std::vector<Scope> scopes = scopes_of(wrong.run, form, wrong.tensor, wrong.pass);
  for (const auto& [candidate, where] :
       {std::pair(Dtype::bf16, Lost::each), std::pair(Dtype::fp16, Lost::each), std::pair(Dtype::bf16, Lost::products),
        std::pair(Dtype::fp16, Lost::products)}) {
    if (!may_keep(candidate)) continue;
    for (std::size_t k = 0; k < scopes.size(); ++k) {
      if (where == Lost::products && !multiplies_matrices(scopes[k])) continue;
      bool sure = false;
      const auto promising = [&](const LowSums& first) {
        return sure = gives_the_numbers(wrong, first.replays.front());
      };
      LowSums low = low_sums(*scopes[k].recording, scopes[k].leaves, scopes[k].target, format(candidate), where,
                             wrong.tensor.dtype, {}, promising);
      if (!sure) continue;
      const Fit fit = fit_of(low, wrong);
      if (!of_that_size(fit)) continue;
      return LowFit{fit, std::move(low), candidate, where, form, k};
    }
  }
  return std::nullopt;
}

/// The best of all such ways in the first form that has a good one.
LowFit likeliest_low(const WrongTensor& wrong, std::span<const double> held) {
  constexpr std::size_t kTelling = 16;  // of fewer wrong elements one replay may miss all
  constexpr std::int64_t kLong = 256;   // elements from which replays take time
  LowFit out;
  Fit& best = out.fit;
  for (std::size_t form = 0; form < wrong.run.op.forms.size(); ++form) {
    const std::vector<Scope> scopes = scopes_of(wrong.run, form, wrong.tensor, wrong.pass);
    // Of equal fits the simplest, which leaves nothing to be asked where it gives the kernel's own numbers.
    for (const Lost at : {Lost::each, Lost::products, Lost::whole, Lost::partial})
      for (const Dtype candidate : {Dtype::bf16, Dtype::fp16})
        for (const Scope& scope : scopes) {
          if (!may_keep(candidate) || (at == Lost::products && !multiplies_matrices(scope))) continue;
          if (at != Lost::each && best.equal >= 0.9 && best.same >= 0.9) continue;
          const auto promising = [&](const LowSums& first) {
            if (wrong.comparison.outside.size() < kTelling || wrong.tensor.shape.count() < kLong) return true;
            const double size = fit_of(first, wrong, 8).size;
            return size > 1.0 / 32 && size < 32;
          };
          LowSums low = low_sums(*scope.recording, scope.leaves, scope.target, format(candidate), at,
                                 wrong.tensor.dtype, held, promising);
          const Fit fit = fit_of(low, wrong);
          // One wrong number among right ones is no rounding of all.
          if (at != Lost::each && wrong.comparison.outside.size() < std::min<std::size_t>(2, wrong.got.size()))
            continue;
          if (fit.better_than(best))
            out = {fit, std::move(low), candidate, at, form, static_cast<std::size_t>(&scope - scopes.data())};
        }
    if (best.equal >= 0.75 || (best.size > 0.5 && best.size < 2)) break;
  }
  return out;
}

/// Of errors as large as those of the replays, or of the numbers of the nearest of them.
Odds odds_of_low(const WrongTensor& wrong, const LowSums& sums) {
  Odds out = odds_of(wrong, [&](std::size_t i) {
    double square = 0;
    for (const std::vector<double>& replay : sums.replays)
      square += std::pow(replay[i] - wrong.interval.value[i], 2) / static_cast<double>(sums.replays.size());
    return Expected{wrong.interval.value[i], std::sqrt(square)};
  });
  for (const std::vector<double>& replay : sums.replays) {
    const Odds one = odds_of(wrong, [&](std::size_t i) { return Expected{replay[i], wrong.interval.radius[i]}; });
    if (one.log10 > out.log10) out = one;
  }
  return out;
}

std::string words_of(const WrongTensor& wrong, const LowFit& low, const Odds& odds) {
  const std::string size = number_text(std::round(low.fit.size * 100) / 100), dtype = name(low.dtype);
  const std::string declared = against(name(wrong.run.op.signature.precision.accumulate), odds);
  // The odds are against causes of no such kind. A number that is rounded once on the way errs much alike: of the zoo's
  // claims with odds of less than this a quarter was of such a number, of the others none.
  constexpr double kTellsThemApart = 6;
  const std::string what = "accumulates in " + dtype +
                           (odds.log10 < kTellsThemApart ? ", or keeps a number on the way in it, rounded once" : "");
  switch (low.where) {
    case Lost::each:
      return fmt::format("{}: the errors are {} times those of a replay with such an accumulator {}", what, size,
                         declared);
    case Lost::products:
      return fmt::format("{}, and rounds each product to it: the errors are {} times those of a replay that does so {}",
                         what, size, declared);
    case Lost::partial:
      return fmt::format(
          "{}, if in partial sums: the errors are {} times those of replays that round sums of parts of the terms to "
          "{} {}",
          what, size, dtype, declared);
    case Lost::whole:
      return fmt::format(
          "keeps a sum in {0}, or accumulates in {0}: the errors are {1} times those of a replay that rounds each sum "
          "to {0} {2}",
          dtype, size, declared);
  }
  return "";
}

Replayed replayed(const WrongTensor& wrong, const LowFit& low) {
  const Odds odds = odds_of_low(wrong, low.sums);
  return {.kind = Replayed::Kind::low_accumulation, .words = words_of(wrong, low, odds), .odds = odds.log10};
}

}  // namespace

Replayed surely_low_accumulation(const WrongTensor& wrong) {
  if (wrong.tensor.shape.count() > kLargestReplay ||
      (wrong.pass != Pass::forward && wrong.run.accumulates(wrong.tensor.name)))
    return {};
  const std::optional<LowFit> low = surely_low(wrong);
  return low ? replayed(wrong, *low) : Replayed();
}

namespace {

/// Shares of the elements outside whose error is of the sign of their value.
double outward(const WrongTensor& wrong, const std::vector<double>& values) {
  double out = 0;
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    out += std::fabs(values[i]) > std::fabs(wrong.interval.value[i]);
  }
  return out / static_cast<double>(wrong.comparison.outside.size());
}

/// A number that was never written or added up is no rounded sum. Whether the wrong elements are zeros that no such
/// replay gives.
bool only_zeros(const WrongTensor& wrong, const LowSums& sums) {
  return std::ranges::all_of(wrong.comparison.outside, [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    return wrong.got[i] == 0 && std::ranges::all_of(sums.replays, [&](const auto& replay) { return replay[i] != 0; });
  });
}

/// Roundings go either way. Whether the kernel's errors all go one way where those of the replays do not.
bool goes_one_way(const WrongTensor& wrong, const LowSums& sums) {
  constexpr std::size_t kFewest = 16;  // fewer may be of one sign by chance
  if (wrong.comparison.outside.size() < kFewest) return false;
  const double kernel = outward(wrong, wrong.got);
  return std::ranges::all_of(sums.replays, [&](const std::vector<double>& replay) {
    return std::fabs(kernel - outward(wrong, replay)) > 0.25;
  });
}

/// Whether right elements are not as far off as such sums would take them.
bool refuted(const WrongTensor& wrong, const LowFit& low, RightRows* right) {
  if (refuted_by_passing(wrong, low.sums.replays)) return true;
  const WrongTensor* const rows = right == nullptr ? nullptr : right->get();
  if (rows == nullptr) return false;
  const Scope there = scopes_of(rows->run, low.form, rows->tensor, rows->pass).at(low.scope);
  const LowSums sums = low_sums(*there.recording, there.leaves, there.target, format(low.dtype), low.where,
                                rows->tensor.dtype, {}, [](const LowSums&) { return false; });
  return refuted_by_passing(*rows, sums.replays);
}

}  // namespace

Replayed explained_by_low_accumulation(const WrongTensor& wrong, RightRows* right) {
  if (wrong.tensor.shape.count() > kLargestReplay) return {};
  const std::vector<double> held = wrong.pass != Pass::forward && wrong.run.accumulates(wrong.tensor.name)
                                       ? wrong.run.held(wrong.tensor)
                                       : std::vector<double>();
  const LowFit low = likeliest_low(wrong, held);
  if (!of_that_size(low.fit)) return {};
  if (only_zeros(wrong, low.sums) || (low.fit.equal < 0.75 && goes_one_way(wrong, low.sums))) return {};
  if (low.fit.equal < 0.75 && wrong_at_exact_sums(wrong, low.form, low.scope, format(low.dtype), low.where)) return {};
  if (low.fit.equal < 0.75 && refuted(wrong, low, right)) return {};
  return replayed(wrong, low);
}

}  // namespace ampcheck::checks
