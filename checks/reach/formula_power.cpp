// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/reach/formula_power.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "checks/case/case_run.h"
#include "checks/data/real_tensors.h"
#include "reference/replay/changes.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kMostCases = 40;
constexpr std::int64_t kMostElements = 4096;     ///< of a tensor of a case
constexpr std::int64_t kMostOfTensor = 1 << 21;  ///< scalar operations of all changes of one tensor at one case
constexpr std::size_t kFewCases = 8;             ///< of large tensors, where there are no others
constexpr std::int64_t kMostOfLarge = 1 << 18, kMostOfLargeTensor = 1 << 24;
constexpr double kMoved = 0x1p-30;  ///< less is the same formula, written otherwise

/// The words with "#" for each number: extents and counts differ from case to case, and the change is the same.
std::string without_numbers(const std::string& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool inside = i > 0 && (std::isalnum(static_cast<unsigned char>(words[i - 1])) || words[i - 1] == '_');
    if (!std::isdigit(static_cast<unsigned char>(words[i])) || inside) {
      out += words[i];
      continue;
    }
    while (i + 1 < words.size() && (std::isalnum(static_cast<unsigned char>(words[i + 1])) || words[i + 1] == '.' ||
                                    (words[i] == 'e' && words[i + 1] == '-')))
      ++i;
    out += '#';
  }
  return out;
}

class Powers {
 public:
  Powers(bool backward, std::int64_t most) : backward_(backward), most_(most) {}

  void look(const OpDef& op, const OpCall& call) {
    const RunOptions options;
    CaseRun run(op, call, options);
    ++cases_;
    for (const Written& output : run.outputs)
      if (!output.saved) look(run, output, Pass::forward);
    if (!backward_ || !op.kernel.backward) return;
    run.cotangents(0);
    for (const Written& gradient : run.gradients) look(run, gradient, Pass::backward);
  }

  FormulaPower result() const {
    FormulaPower out;
    out.cases = cases_;
    for (const auto& [key, seen] : seen_) {
      if (!seen.moves) continue;
      ++out.changes;
      out.found += seen.shows;
      if (!seen.shows) out.missed.push_back(seen.words);
    }
    return out;
  }

 private:
  struct Seen {
    std::string words;  ///< of the first case
    bool moves = false, shows = false;
  };

  void look(CaseRun& run, const Written& tensor, Pass pass) {
    if (!is_float(tensor.dtype) || tensor.shape.count() == 0 || run.accumulates(tensor.name)) return;
    const std::size_t form = run.reference.forms().front();
    const reference::Recording& recording = run.reference.recording(form);
    for (const auto& [name, node] : nodes_of(recording, pass)) {
      if (name != tensor.name || !node.defined()) continue;
      const Interval interval = run.reference.interval(form, pass, name, tensor.dtype);
      const std::string subject = (pass == Pass::forward ? "forward " : "backward ") + name + ": ";
      reference::for_each_change(*recording.graph, run.reference.leaves(form, pass), node, {}, most_,
                                 [&](const reference::Change& change, const std::vector<double>& changed) {
                                   take(subject, interval, change, changed);
                                   return true;
                                 });
    }
  }

  void take(const std::string& subject, const Interval& interval, const reference::Change& change,
            const std::vector<double>& changed) {
    if ((change.narrowed != nullptr && !change.of_sum) || change.nonlinear) return;
    Seen& seen = seen_[subject + without_numbers(change.words)];
    if (seen.shows) return;
    if (seen.words.empty()) seen.words = subject + change.words;
    std::vector<double> stored = changed;
    round_values(format(interval.dtype), RoundingMode{}, stored, stored);
    for (std::size_t i = 0; i < stored.size() && !seen.shows; ++i) {
      const double want = interval.value[i];
      seen.moves |= !(std::fabs(changed[i] - want) <= kMoved * std::fabs(want)) && std::isfinite(want);
      seen.shows = seen.moves && !admits(interval, static_cast<std::int64_t>(i), stored[i]);
    }
  }

  bool backward_;
  std::int64_t most_;  ///< scalar operations of all changes of one tensor at one case
  std::int64_t cases_ = 0;
  std::map<std::string, Seen> seen_;
};

/// Elements of its largest tensor.
std::int64_t size(const OpSignature& signature, const OpCall& call) {
  std::int64_t out = 0;
  for (const TensorSpec& spec : signature.inputs)
    if (call.has(spec)) out = std::max(out, call.shape(spec).count());
  return out;
}

/// Small cases; where extents that stay leave none, some of the smallest.
std::vector<const OpCall*> chosen_of(const OpSignature& signature, const std::vector<OpCall>& calls, bool& large) {
  std::int64_t least = kMostOfLarge;
  for (const OpCall& call : calls)
    if (!is_real_range(call.range)) least = std::min(least, size(signature, call));
  large = least > kMostElements;
  const std::int64_t most = large ? std::min(2 * least, kMostOfLarge) : kMostElements;
  std::vector<const OpCall*> fit, out;
  for (const OpCall& call : calls)
    if (!is_real_range(call.range) && size(signature, call) <= most) fit.push_back(&call);
  // Spread over the list: cases of one kind of data stand together.
  const std::size_t cases = large ? kFewCases : kMostCases,
                    step = std::max<std::size_t>(1, (fit.size() + cases - 1) / cases);
  for (std::size_t i = 0; i < fit.size(); i += step) out.push_back(fit[i]);
  return out;
}

}  // namespace

FormulaPower formula_power(const OpDef& op, const std::vector<OpCall>& calls, bool backward,
                           const std::atomic<bool>* cancel) {
  bool large = false;
  const std::vector<const OpCall*> chosen = chosen_of(op.signature, calls, large);
  Powers powers(backward, large ? kMostOfLargeTensor : kMostOfTensor);
  if (op.forms.empty()) return powers.result();
  for (const OpCall* call : chosen) {
    if (cancel != nullptr && cancel->load()) break;
    powers.look(op, *call);
  }
  return powers.result();
}

}  // namespace ampcheck::checks
