// SPDX-License-Identifier: Apache-2.0
// Where an implementation rounds on the way: the set of intermediates of a formula that it keeps in a 16-bit type. Two
// stacks that both follow a formula differ mostly in that ("A rounds before weight, B after").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/explain/departures.h"
#include "checks/explain/tried_departures.h"
#include "checks/run/contract_evidence.h"

namespace ampcheck::checks::stacks {

/// An intermediate that a kernel may round to a 16-bit type.
struct Boundary {
  std::string key;     ///< the same at every shape: its words, and which of several of these words
  std::string text;    ///< "x * rsqrt(mean(x * x) + 1e-06)"
  std::string before;  ///< the tensor that it meets next: "weight"; empty where it meets no input
  Dtype dtype = Dtype::bf16;
  bool of_sum = false;  ///< it is a sum, rounded once it is complete
};

/// One way to follow a formula.
struct Way {
  std::size_t form = 0;
  std::vector<std::size_t> rounded = {};  ///< of the boundaries of that form, ascending

  bool operator==(const Way&) const = default;
};

/// How well a way explains what a side wrote. An interval is certain: one number outside refutes the way.
struct Fit {
  std::int64_t judged = 0, outside = 0;
  double likelihood = 0;  ///< log10: an element is any number of its interval

  double score() const { return likelihood + kImpossibleElement * static_cast<double>(outside); }
};

/// The op with further forms beside its own: the same products, multiplied in another order.
OpDef with_orders_of_products(const OpDef& op);

/// The ways to compute one tensor, held against what one side wrote.
class Ways {
 public:
  /// `wrote`: all of this tensor; `op` must outlive this.
  Ways(const OpDef& op, const std::vector<Wrote>& wrote);
  ~Ways();
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  const std::vector<Boundary>& boundaries(std::size_t form) const { return boundaries_[form]; }
  const std::string& form_name(std::size_t form) const;
  /// Whether a way of the one is a way of the other.
  bool same_as(const Ways& other) const;
  Fit fit(const Way& way);
  /// The likeliest way; of ways that say the same the one that rounds least. `next`: how likely the best other one is.
  struct Best {
    Way way;
    Fit fit, next;
  };
  Best best();

  /// "rounds x * rsqrt(...) to bf16", or "rounds once, at the end".
  std::string words(const Way& way) const;

 private:
  struct One;
  /// On the first of what was written only, so that many ways are tried in little time.
  Fit fit_of(const Way& way, std::size_t most);
  void climb(std::size_t form, Way start, std::vector<std::pair<double, Way>>& found);
  double prior(const Way& way) const;

  const OpDef& op_;
  std::vector<std::unique_ptr<One>> all_;
  std::vector<std::vector<Boundary>> boundaries_;  ///< by form
  std::size_t scouts_ = 0;
};

/// The line that says how two ways differ: "A rounds before weight, B after"; empty where they do not.
std::string boundary_line(const Ways& a, const Way& of_a, const Ways& b, const Way& of_b);

}  // namespace ampcheck::checks::stacks
