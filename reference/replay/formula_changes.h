// SPDX-License-Identifier: Apache-2.0
// The walk of for_each_change(): which changes each node allows.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reference/ball/ball_rules.h"
#include "reference/graph/node_text.h"
#include "reference/replay/changes.h"
#include "reference/replay/plain_evaluator.h"
#include "src/rounding.h"

namespace ampcheck::reference {

/// A change that is one of many of its kind: `freedom` bits of choice.
inline Change chosen(std::string words, double freedom) {
  Change out{.words = std::move(words)};
  out.freedom = freedom;
  return out;
}

class FormulaChanges {
 public:
  using Values = std::vector<double>;

  FormulaChanges(const Graph& graph, const std::vector<std::pair<Expr, Values>>& leaves, Expr target,
                 const NodeNames& names, std::int64_t most,
                 const std::function<bool(const Change&, const Values&)>& see, const OneChange* only,
                 const WrittenNumbers* written);

  void run();
  void run_further();

 private:
  /// Scalar operations of a node, about.
  std::int64_t cost(const Node& node) const;
  /// Of what the last change made follow.
  std::int64_t followed_cost() const;
  bool given(int id) const { return std::find(given_.begin(), given_.end(), id) != given_.end(); }
  const Values& values(int id) { return evaluator_.value({const_cast<Graph*>(&graph_), id}); }
  std::string text(int id) const { return text_of(graph_, id, names_); }

  /// An operand of a node, repeated to its shape.
  Values spread(const Node& node, std::size_t k);

  /// The target with other values for one node.
  void with(int id, Values other, Change change) {
    if (!going_ || !wanted(change.words)) return;
    if (in_one_use_) return in_one_use(id, std::move(other), change);
    if (other != values(id)) all_with({{id, std::move(other)}}, change);
  }
  /// With other values for several.
  void all_with(std::vector<std::pair<int, Values>> others, const Change& change);
  void with(int id, Values other, std::string words) { with(id, std::move(other), Change{std::move(words), nullptr}); }

  bool wanted(const std::string& words) const {
    return only_ == nullptr || same_change(words, *only_, in_one_use_ ? Match::beginning : Match::all);
  }

  /// Whether a change in these words is tried: asked before its numbers are made, which may be many.
  bool may_try(const std::string& words) {
    if (!going_ || !wanted(words)) return false;
    if (left_ > 0) return true;
    left_ = -1;
    return going_ = false;
  }

  /// Whether the walk looks at the changes of a node, or (-1) of the whole: where one change is of interest, at its
  /// site alone.
  bool enters(int site) {
    site_ = site;
    return going_ && (only_ == nullptr || only_->site == OneChange::kAnywhere || only_->site == site);
  }

  template <class F>
  Values map(const Values& from, F f) {
    Values out = from;
    for (double& v : out) v = f(v);
    return out;
  }

  /// The other kinds may still be small enough where one was not.
  void afresh();

  void change(int id);

  /// Of a sum or difference of two: a term left out, turned, twice, or without its factor.
  void terms_change(int id, const Node& node);

  /// Of a product: a factor left out, and what other_power() and own_term() have.
  void product_change(int id, const Node& node);

  /// Of a quotient: the divisor left out or guarded, a product or the inverse in its place.
  void quotient_change(int id, const Node& node);

  /// Of a function of one operand: the operand itself, another base, a guarded argument, a function near by.
  void function_change(int id, const Node& node);
  void logarithm_change(int id, const Node& node);
  void exponential_change(int id, const Node& node);
  void root_change(int id, const Node& node);

  /// An exponent off by one, of the other sign, halved; a base that loses its sign.
  void pow_change(int id, const Node& node);

  /// A factor that divides, or stands twice.
  void other_power(int id, const Node& node, std::size_t k);

  /// Of a chain of additions the first term alone: what follows from the others is dead.
  void first_term(int id, const Node& node);

  /// Of equal terms among others in a chain of additions one alone: a power rule without its factor.
  void equal_terms(int id, const Node& node);

  /// < for <=, and the condition turned round.
  void condition_change(int id, const Node& node);

  /// Another leaf in the place of one side of a condition: the sign of g for that of x.
  void other_mask(int id, const Node& node, std::size_t k);

  /// a x + b y with a and b exchanged, as of a momentum that weighs the wrong one.
  void weights_exchanged(int id, const Node& node);

  /// Zero behind the last full vector, for whatever adds it up: keys that a softmax never meets.
  void tail_change(int id, const Node& node);

  /// A maximum that leaves out the first or last number.
  void max_change(int id, const Node& node);
  /// Or compares bits as integers.
  void by_bits(int id, const Axis& axis, const Values& from);

  /// 1/(sqrt(v) + c) for 1/sqrt(v + c).
  void outside_root(int id, const Node& sum);

  /// Of terms that meet in one element, the last alone: what plain stores leave of a scatter.
  void put_change(int id, const Node& node);

  /// Of a sum: the mean instead, or a sum over more axes.
  void sum_change(int id, const Node& node);

  /// Of cumulative sums: without the own term, from the other end, the whole sum for all, blocks that carry nothing
  /// over.
  void cumsum_change(int id, const Node& node);

  /// The same slips in the dot products of a matrix product.
  void matmul_change(int id, const Node& node);

  /// What lies outside an image or table read as 1, or as its neighbour.
  void take_change(int id, const Node& node);

  /// Of a window of a tensor beside others of its size: another one in its place, or both exchanged.
  void window_change(int id, const Node& node);

  /// Of equal maxima all, or the last.
  void ties_change(int id, const Node& node);

  /// The node below views.
  int below(int id) const;

  /// An element's own term where a sum over the axis is due.
  void own_term(int id, const Node& node, std::size_t k);

  /// A running or a block's maximum subtracted in place of that of all: sums that are not rescaled when it grows.
  void shift_change(int id, const Node& node);

  void leaf(int id);
  /// Read with two axes exchanged, or less its own mean.
  void other_layouts(int id);
  /// Read with rows that lie otherwise in memory: another pitch, three axes in turn, tiles transposed.
  void other_pitches(int id);
  void axes_in_turn(int id);
  void tiles_transposed(int id);

  /// A mask left out, or one column too wide or too narrow.
  void mask_change(int id, const Node& node);

  /// A neighbour's or the first number along an axis.
  void other_rows(int id);

  /// The first matrix of a batch for all of them.
  void first_matrix(int id);

  /// Whether a node is a sum, times a constant perhaps.
  bool sums(int id) const;

  /// A node in fewer bits: an operand, an intermediate, or what is stored in more.
  void narrow(int id);

  /// One sum alone in order, each partial sum in fewer bits.
  void added_up_in_few_bits(int id, const Node& node);

  /// The reciprocal of a divisor in fewer bits, by which the dividend is multiplied.
  void narrow_reciprocal(int id, const Node& node);

  struct Narrow {
    const FloatFormat* format;
    Rounding rounding;
    const char* words;
  };
  /// cvt.rna.tf32 rounds ties away; tensor cores that are given fp32 leave the last bits out.
  static std::span<const Narrow> narrows(bool operand);

  /// A factor of all of the target that no product of the formula's own algebra shows: r (g - n mean(g n)) without its
  /// r.
  void whole_factors();

  /// The count of every mean over n off by one, or rounded up to a vector.
  void shares_together();

  /// What is saved, all of it in fewer bits.
  void narrow_saved();

  /// Several nodes in fewer bits at once.
  void narrow_together(const std::vector<int>& ids, const std::string& words);

  /// The operands of a product, as tensor cores take them, and all operands.
  void narrow_operands();

  // ---- change_exchanges.cpp ----

  /// All changes that follow from the graph alone.
  void systematic();
  /// Of those, what becomes of numbers that are repeated, and of exponentials.
  void repeats();

  /// Tensors that a kernel might take for another: inputs, cotangents, outputs, what is saved, every intermediate; of
  /// equal ones the first.
  std::vector<int> numbers_at_hand();

  /// Another function of the same operand, another operator between the same two.
  void functions_exchanged(int id);

  /// A function between a number and all that follows from it.
  void put_between(int id);

  /// Another number at hand for each operand.
  void operands_exchanged(int id, const std::vector<int>& at_hand);

  /// Another number at hand for an input, wherever it is used; two inputs exchanged.
  void leaves_exchanged(const std::vector<int>& at_hand);

  /// Another number at hand wherever an intermediate is used.
  void taken_for(int id, const std::vector<int>& at_hand);

  /// A number multiplied by, divided by, or added to another one at hand.
  void joined(int id, const std::vector<int>& at_hand);

  /// A factor of an intermediate on all of the target: a weight after the means are taken off.
  void factor_moved(int id);

  /// A constant factor that stands at another number: exp(alpha x) for alpha exp(x).
  void constant_moved(int id, const std::vector<int>& at_hand);

  // ---- change_uses.cpp ----

  /// The changes of the nodes that several others use, each in one of these uses alone: a kernel that computes a number
  /// anew in each place may be wrong in one.
  void one_use_each();
  struct Use {
    int user;
    std::size_t arg;
  };
  /// Who uses each node, where that counts for the target.
  void list_uses();
  /// Other values of a node in each use; of a node with one use, in each use of what follows from it.
  void in_one_use(int id, Values other, Change change);

  // ---- change_expressions.cpp ----

  /// A short expression of numbers at hand in the place of the target, or of one of its terms.
  void short_expressions(const std::vector<int>& at_hand);
  struct Spread;
  std::vector<Spread> numbers_of_expressions(const std::vector<int>& at_hand);
  struct Place;
  std::vector<Place> places_of_expressions();

  // ---- change_broadcasts.cpp ----

  /// A parameter that is repeated along other axes than its own.
  void laid_along_another_axis(int id);

  /// Of what a mean or maximum is taken off: the first number, an extreme or nothing taken off, everywhere or in one
  /// use.
  void other_centre(int id);

  /// A number multiplied or divided by an input where one of several uses has it.
  void joined_in_one_use(int id, const std::vector<int>& at_hand);

  /// Inputs in the place of computed numbers of as many elements, one or two at a time: running statistics for those of
  /// the batch.
  void statistics_exchanged();

  /// Means over the count of another axis, in every mean, the last ones or one.
  void counts_of_other_axes();

  // ---- change_probabilities.cpp ----

  /// Sums of exponentials that are rescaled otherwise as the maximum grows.
  void rescaled_sums(int id);

  /// log(p + eps), log(max(p, eps)), a p of few bits, where a difference of logarithms stands.
  void logarithm_of_probability(int id);

  /// At least an eps in the place of an operand; of(v) is what follows from that.
  void floored(int id, const std::string& what, const std::function<double(double)>& of, const Values& argument);

  /// A function by an exponential in few bits.
  void approximated(int id);

  // ---- change_windows.cpp ----

  /// Other padding; windows that begin elsewhere.
  void other_borders(int id);

  // ---- change_geometry.cpp ----

  /// Windows over images with another stride, padding or dilation.
  void other_geometry();
  void in_another_geometry(const std::vector<std::int64_t>& due, const std::vector<std::int64_t>& map,
                           const std::string& words);

  // ---- change_places.cpp ----

  void places();
  void places_of_leaf(int id);
  void places_of_sums(int id);

  /// Lanes, halves, neighbours exchanged.
  void another_order(int id);

  /// A sum or maximum that rows share, or inherit from the rows before.
  void shared_by_rows(int id);

  /// Of what a scatter adds up, the first or last along an axis.
  void ends_left_out(int id);

  /// The mark of a maximum at another place.
  void winner_moved(int id);

  /// The sum or mean along an axis in the place of each number.
  void spread_along(int id);
  /// The function of a mean for the mean of a function.
  void function_of_mean(int id);

  /// The mean, minimum or norm for a sum or maximum.
  void another_reduction(int id);
  void means_of_blocks(int id);
  void moving_sums(int id);

  /// Inputs whose later tiles are the first one again, or the one before.
  void stale_tiles(int id);

  /// Inputs of which each element serves several in a row, or the first few serve all in turn.
  void repeated(int id);

  /// Channels that are dealt out in turn where they stand in blocks: inputs in another order, the target put back.
  void dealt_out();

  // ---- change_sums.cpp ----

  /// Parts and strides of the terms of a sum or maximum; of the products of a matmul.
  void terms_left_out(int id);
  void products_left_out(int id);

  /// The same terms left out of every sum over so many: they share a loop.
  void sums_together();

  /// Terms of zeros behind the last one.
  void padded_terms(int id);

  /// The mean size, or the largest, for the root of a mean square.
  void other_norm(int id);

  // ---- change_numbers.cpp ----

  /// What a mask hides with a small weight, as where a finite number is taken from its score.
  void soft_mask();
  /// The same with a finite number for its score.
  void finite_scores(int mask, const std::vector<int>& chosen);

  /// A factor or an addend found from what was written.
  void numbers();
  std::vector<std::size_t> telling_elements();
  /// The number for which the target is what was written at an element: of(number) are its values. `from`: where it has
  /// no effect; `to`: another one.
  template <class Of>
  std::optional<double> solved(std::size_t element, double from, double to, Of of);
  /// A number of the formula, everywhere (`user` < 0) or as the argument of one function alone.
  struct Site {
    int id, user;
  };
  std::vector<Site> sites_of_numbers();
  using Way = FoundNumber::Way;
  std::string what_of(const Site& site);
  std::vector<std::pair<int, Values>> with_number(const Site& site, Way way, double number);
  void try_number(const Site& site, Way way, double number);
  /// Where a clip is looked for: at what has the target's size.
  bool way_fits(Way way, const Site& site);

  // ---- change_edges.cpp ----

  /// A condition that changes sides elsewhere: those of its elements that are wrong, if they lie next to its edge.
  void edge_moved(int id);
  /// Another number at hand where one lies beyond an edge: the limit of a function, taken too early.
  void branch_taken(const std::vector<int>& at_hand);

  const Graph& graph_;
  Expr target_;
  NodeNames names_;
  std::int64_t most_, left_, cost_ = 0;
  const std::function<bool(const Change&, const Values&)>& see_;
  const OneChange* only_;
  const WrittenNumbers* written_;
  PlainEvaluator<Fp64Policy> evaluator_;
  std::vector<int> given_;
  std::set<double> eps_ = {1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5};  ///< what kernels add so as not to divide by zero
  std::set<double> counts_;                                        ///< of the means
  std::vector<char> needed_;
  bool going_ = true;
  int site_ = -1;                       ///< where the walk is
  bool in_one_use_ = false;             ///< changes are tried in one use of a node at a time
  std::vector<std::vector<Use>> uses_;  ///< by node
};

}  // namespace ampcheck::reference
