// SPDX-License-Identifier: Apache-2.0
// Changes of where numbers come from and go to: lanes and halves exchanged, rows that share or inherit what each should
// have of its own, maxima that send their gradient to a neighbour.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

/// Bits of choice among the changes of places, about.
constexpr double kOfPlaces = 6;

Change placed(std::string words) { return chosen(std::move(words), kOfPlaces); }

/// Another order of n elements: which one comes to stand at i.
struct Order {
  const char* words;
  std::int64_t fewest;
  std::int64_t (*from)(std::int64_t i, std::int64_t n);
};
constexpr Order kOrders[] = {
    {"the elements of each pair exchanged", 2,
     [](std::int64_t i, std::int64_t n) { return n % 2 == 1 && i + 1 == n ? i : i ^ 1; }},
    {"the pairs of each four exchanged", 4,
     [](std::int64_t i, std::int64_t n) { return i / 4 * 4 + 4 > n ? i : i ^ 2; }},
    {"each four turned round", 4, [](std::int64_t i, std::int64_t n) { return i / 4 * 4 + 4 > n ? i : i ^ 3; }},
    {"its two halves exchanged", 2, [](std::int64_t i, std::int64_t n) { return n % 2 == 1 ? i : (i + n / 2) % n; }},
    {"the even elements first, then the odd ones", 4,
     [](std::int64_t i, std::int64_t n) { return i < (n + 1) / 2 ? 2 * i : 2 * (i - (n + 1) / 2) + 1; }},
    {"its halves interleaved", 4,
     [](std::int64_t i, std::int64_t n) { return i % 2 == 0 ? i / 2 : (n + 1) / 2 + i / 2; }},
    {"the previous element in place of each but the first, shifted by one", 2,
     [](std::int64_t i, std::int64_t) { return std::max<std::int64_t>(i - 1, 0); }},
    {"the next element in place of each but the last, shifted by one", 2,
     [](std::int64_t i, std::int64_t n) { return std::min(i + 1, n - 1); }},
};

}  // namespace

void FormulaChanges::another_order(int id) {
  const Node& node = graph_.node(id);
  const std::string what = id == target_.id ? "" : fmt::format(" of {}", text(id));
  const std::vector<std::pair<std::int64_t, std::string>> axes = [&] {
    std::vector<std::pair<std::int64_t, std::string>> out;
    for (int axis = node.shape.rank; axis-- > 0;)
      out.emplace_back(axis, node.shape.rank > 1 ? fmt::format(" along axis {}", axis) : "");
    return out;
  }();
  for (const auto& [axis, along_axis] : axes)
    for (const Order& order : kOrders)
      if (node.shape[static_cast<int>(axis)] >= order.fewest)
        with(id, along(values(id), node.shape, static_cast<int>(axis), order.from),
             placed(fmt::format("with {}{}{}: another {}", order.words, what, along_axis,
                                axis + 1 < node.shape.rank ? "row's" : "element's")));
  if (node.shape.rank < 2) return;
  // A kernel that takes the tensor for flat: its vectors run on from row to row.
  const Shape flat{node.shape.count()};
  for (const Order& order : kOrders)
    if (flat[0] >= order.fewest)
      with(id, along(values(id), flat, 0, order.from),
           placed(fmt::format("with {}{} from row to row: another element's", order.words, what)));
}

void FormulaChanges::shared_by_rows(int id) {
  const Node& node = graph_.node(id);
  if (node.shape.count() < 2 || (node.primitive != Primitive::sum && node.primitive != Primitive::max)) return;
  const bool adds = node.primitive == Primitive::sum;
  const Values own = values(id);
  const auto n = std::ssize(own);
  const std::string what = text(id);
  std::vector<std::int64_t> blocks;
  for (const std::int64_t block : {2, 4, 8})
    if (block < n) blocks.push_back(block);
  blocks.push_back(n);
  for (const std::int64_t block : blocks) {
    Values running = own, shared = own;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i % block != 0) running[at] = adds ? running[at - 1] + own[at] : std::fmax(running[at - 1], own[at]);
    }
    for (std::int64_t i = n; i-- > 0;)  // what the last row of a block has is what all of them share
      shared[static_cast<std::size_t>(i)] = running[static_cast<std::size_t>(std::min(n, (i / block + 1) * block) - 1)];
    const std::string of = block == n ? "all rows" : fmt::format("{} rows", block);
    with(id, std::move(running),
         placed(fmt::format("with {} that begins anew every {}: it takes in the rows before, another row's", what,
                            block == n ? "launch" : of)));
    with(id, std::move(shared), placed(fmt::format("with one {} for each {}: another row's", what, of)));
  }
}

void FormulaChanges::ends_left_out(int id) {
  const Node& node = graph_.node(id);
  for (int axis = 0; axis < node.shape.rank; ++axis) {
    const Axis a = split(node.shape, axis);
    if (a.n < 2) continue;
    for (const std::int64_t end : {a.n - 1, std::int64_t{0}}) {
      Values out = values(id);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (static_cast<std::int64_t>(i) / a.inner % a.n == end) out[i] = 0;
      with(id, std::move(out),
           placed(fmt::format("without the {} of {} along axis {}: it is left out, lost", end == 0 ? "first" : "last",
                              text(id), axis)));
    }
  }
}

void FormulaChanges::winner_moved(int id) {
  const Node& node = graph_.node(id);
  const Axis a = split(node.shape, node.axis);
  if (a.n < 2) return;
  const Values first = values(id), of = values(node.args[0]);
  const auto marks = [&](auto place) {
    Values out(first.size(), 0.0);
    for (std::int64_t row = 0; row < a.outer * a.inner; ++row) {
      const std::int64_t begin = row / a.inner * a.inner * a.n + row % a.inner;
      const auto at = [&](std::int64_t k) { return static_cast<std::size_t>(begin + k * a.inner); };
      std::int64_t winner = 0, loser = 0;
      for (std::int64_t k = 0; k < a.n; ++k) {
        if (first[at(k)] != 0) winner = k;
        if (of[at(k)] < of[at(loser)]) loser = k;
      }
      if (const std::int64_t k = place(winner, loser); k >= 0 && k < a.n) out[at(k)] = 1;
    }
    return out;
  };
  const std::string what = text(node.args[0]);
  const auto say = [&](auto place, const std::string& where) {
    with(id, marks(place), placed(fmt::format("with {} for the maximum of {}", where, what)));
  };
  using I = std::int64_t;
  say([&](I w, I) { return (w + 1) % a.n; }, "the place after it: off by one, another element's place");
  say([&](I w, I) { return (w + a.n - 1) % a.n; }, "the place before it: off by one, another element's place");
  say([&](I w, I) { return w + 1; }, "the place after it, if there is one: off by one, another element's place");
  say([&](I w, I) { return w - 1; }, "the place before it, if there is one: off by one, another element's place");
  say([](I, I) { return I{0}; }, "the first place");
  say([&](I, I) { return a.n - 1; }, "the last place");
  say([](I, I l) { return l; }, "the place of the minimum");
  // What is chosen by the mark, in equal shares for all.
  for (std::size_t user = 0; user < needed_.size(); ++user) {
    const Node& chosen_by = graph_.node(static_cast<int>(user));
    if (!needed_[user] || given(static_cast<int>(user)) || !(chosen_by.shape == node.shape)) continue;
    const bool where = chosen_by.primitive == Primitive::where && chosen_by.args[0] == id;
    const bool times = chosen_by.primitive == Primitive::mul && (chosen_by.args[0] == id || chosen_by.args[1] == id);
    if (!where && !times) continue;
    with(static_cast<int>(user),
         map(spread(chosen_by, where || chosen_by.args[0] == id ? 1 : 0),
             [&](double v) { return v / static_cast<double>(a.n); }),
         placed(fmt::format("with equal shares of {} for the maximum of {} alone: as of a mean, every one of {}",
                            text(chosen_by.args[where || chosen_by.args[0] == id ? 1 : 0]), what, a.n)));
  }
}

void FormulaChanges::spread_along(int id) {
  const Node& node = graph_.node(id);
  const Values from = values(id);
  for (int axis = 0; axis < node.shape.rank; ++axis) {
    const Axis a = split(node.shape, axis);
    if (a.n < 2) continue;
    Values sum(from.size());
    for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
      const std::int64_t begin = line / a.inner * a.inner * a.n + line % a.inner;
      double total = 0;
      for (std::int64_t k = 0; k < a.n; ++k) total += from[static_cast<std::size_t>(begin + k * a.inner)];
      for (std::int64_t k = 0; k < a.n; ++k) sum[static_cast<std::size_t>(begin + k * a.inner)] = total;
    }
    const auto size = static_cast<double>(a.n);
    with(id, map(sum, [=](double v) { return v / size; }),
         placed(fmt::format("with the mean along axis {} in the place of each number of {}", axis, text(id))));
    with(id, std::move(sum),
         placed(fmt::format("with the sum along axis {} in the place of each number of {}: it is added up", axis,
                            text(id))));
  }
}

void FormulaChanges::function_of_mean(int id) {
  const Node& node = graph_.node(id);
  const int below_views = below(node.args[0]);
  const Node& term = graph_.node(below_views);
  const bool squares = term.primitive == Primitive::square;
  const bool function = squares || (term.primitive >= Primitive::exp && term.primitive <= Primitive::rsqrt);
  const Axis a = split(graph_.node(node.args[0]).shape, node.axis);
  // Views of all that is added up stand in no order that counts.
  const bool viewed = below_views != node.args[0] && a.n != term.shape.count();
  if (!function || viewed || a.n < 2 || graph_.node(term.args[0]).shape.count() != term.shape.count()) return;
  const auto sum_of = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return static_cast<std::size_t>(at / (a.inner * a.n) * a.inner + at % a.inner);
  };
  const Values& from = values(term.args[0]);
  Values mean(values(id).size(), 0.0), wide(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) mean[sum_of(i)] += from[i] / static_cast<double>(a.n);
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = mean[sum_of(i)];
  Values of_means = evaluator_.value_if_argument(below_views, 0, std::move(wide));
  with(id, evaluator_.value_if({{below_views, std::move(of_means)}}, {target_.graph, id}),
       placed(fmt::format("with {} of the mean of {} for the mean of it: in the other order",
                          squares ? "the square" : name(term.primitive), text(term.args[0]))));
}

void FormulaChanges::another_reduction(int id) {
  const Node& node = graph_.node(id);
  const Shape& shape = graph_.node(node.args[0]).shape;
  const Axis a = split(shape, node.axis);
  if (a.n < 2) return;
  const Values from = values(node.args[0]);
  const auto gathered = [&](double start, auto join) {
    Values out(values(id).size(), start);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      double& to = out[static_cast<std::size_t>(at / (a.inner * a.n) * a.inner + at % a.inner)];
      to = join(to, from[i]);
    }
    return out;
  };
  const std::string what = text(node.args[0]), was = node.primitive == Primitive::max ? "maximum" : "sum";
  const auto say = [&](Values other, const char* is) {
    with(id, std::move(other), placed(fmt::format("with {} for the {} of {}: another reduction", is, was, what)));
  };
  const auto size = static_cast<double>(a.n);
  Values sum = gathered(0, [](double s, double v) { return s + v; });
  if (node.primitive == Primitive::max) {
    say(map(sum, [=](double v) { return v / size; }), "the mean");
    say(std::move(sum), "the sum");
  } else
    say(gathered(-HUGE_VAL, [](double s, double v) { return std::fmax(s, v); }), "the maximum");
  say(gathered(HUGE_VAL, [](double s, double v) { return std::fmin(s, v); }), "the minimum");
  say(gathered(0, [](double s, double v) { return s + std::fabs(v); }), "the sum of sizes");
  say(gathered(0, [](double s, double v) { return s + v * v; }), "the sum of squares");
  say(map(gathered(0, [](double s, double v) { return s + v * v; }), [](double v) { return std::sqrt(v); }),
      "the root of the sum of squares");
}

void FormulaChanges::means_of_blocks(int id) {
  const Node& node = graph_.node(id);
  const Shape& shape = graph_.node(node.args[0]).shape;
  const std::int64_t n = shape[node.axis];
  for (const std::int64_t block : {4, 8, 16, 32, 64, 128, 256}) {
    if (block >= n || n % block == 0) continue;
    const std::int64_t blocks = (n + block - 1) / block;
    std::vector<double> weights(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k)
      weights[static_cast<std::size_t>(k)] =
          static_cast<double>(n) / static_cast<double>(blocks * std::min(block, n - k / block * block));
    with(id, weighted(values(node.args[0]), shape, node.axis, weights),
         placed(fmt::format("with blocks of {} of {} that weigh alike, the shorter tail as well: the mean of means",
                            block, text(node.args[0]))));
  }
}

void FormulaChanges::moving_sums(int id) {
  const Node& node = graph_.node(id);
  const Axis a = split(node.shape, node.axis);
  const Values from = values(node.args[0]);
  const auto running = [&](auto join, const char* what) {
    Values out = from;
    for (std::int64_t k = 0; k < std::ssize(out); ++k) {
      const std::int64_t at = node.reversed ? std::ssize(out) - 1 - k : k, index = at / a.inner % a.n;
      if (index == (node.reversed ? a.n - 1 : 0)) continue;
      const double before = out[static_cast<std::size_t>(node.reversed ? at + a.inner : at - a.inner)];
      out[static_cast<std::size_t>(at)] = join(before, from[static_cast<std::size_t>(at)]);
    }
    with(id, std::move(out),
         placed(fmt::format("with the running {} of {} for its cumulative sum: another reduction", what,
                            text(node.args[0]))));
  };
  running([](double s, double v) { return std::fmax(s, v); }, "maximum");
  running([](double s, double v) { return std::fmin(s, v); }, "minimum");
  running([](double s, double v) { return s * v; }, "product");
  for (const std::int64_t window : {2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    if (window >= a.n) break;
    Values out(from.size(), 0.0);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i), index = at / a.inner % a.n,
                         steps = std::min(window, node.reversed ? a.n - index : index + 1);
      for (std::int64_t k = steps; k-- > 0;)
        out[i] += from[static_cast<std::size_t>(at + (node.reversed ? k : -k) * a.inner)];
    }
    with(id, std::move(out),
         placed(fmt::format("with the last {} terms alone of the cumulative sum of {}: a window", window,
                            text(node.args[0]))));
  }
}

void FormulaChanges::stale_tiles(int id) {
  const Node& node = graph_.node(id);
  for (int axis = node.shape.rank; axis-- > 0;)
    for (const std::int64_t tile : {2, 4, 8, 16, 32, 64, 128}) {
      if (tile >= node.shape[axis]) break;
      const auto say = [&](auto from, const char* which) {
        with(id, along(values(id), node.shape, axis, from),
             placed(fmt::format("with the {} tile of {} of {} along axis {} for the next one: a stale tile, another "
                                "block's index",
                                which, tile, text(id), axis)));
      };
      say([=](std::int64_t i, std::int64_t) { return i % tile; }, "first");
      if (2 * tile < node.shape[axis])
        say([=](std::int64_t i, std::int64_t) { return i < tile ? i : i - tile; }, "previous");
    }
}

void FormulaChanges::repeated(int id) {
  const Node& node = graph_.node(id);
  for (int axis = node.shape.rank; axis-- > 0;) {
    const std::int64_t n = node.shape[axis];
    for (std::int64_t groups = 2; groups <= n / 2 && groups <= 64; ++groups) {
      if (n % groups != 0) continue;
      const std::int64_t size = n / groups;
      const auto say = [&](auto from, const std::string& which) {
        with(id, along(values(id), node.shape, axis, from),
             placed(fmt::format("with {} of {} along axis {}: another index", which, text(id), axis)));
      };
      say([=](std::int64_t i, std::int64_t) { return i / size; },
          fmt::format("each of the first {} elements for {} in a row", groups, size));
      say([=](std::int64_t i, std::int64_t) { return i / size * size; },
          fmt::format("the first element of each {} for all {}", size, size));
      if ((size & (size - 1)) != 0)
        say([=](std::int64_t i, std::int64_t) { return i % size; },
            fmt::format("the first {} elements, again and again,", size));
    }
  }
}

void FormulaChanges::dealt_out() {
  const Shape& whole = graph_.node(target_.id).shape;
  for (int axis = 0; axis < whole.rank; ++axis) {
    const std::int64_t n = whole[axis];
    for (std::int64_t groups = 2; groups <= n / 2 && groups <= 64; ++groups) {
      if (n % groups != 0) continue;
      const std::int64_t size = n / groups;
      // Element i of the new order is the (i % size)-th that is dealt to group i / size.
      const auto dealt = [=](std::int64_t i, std::int64_t) { return i % size * groups + i / size; };
      const auto back = [=](std::int64_t i, std::int64_t) { return i % groups * size + i / groups; };
      std::vector<std::pair<int, Values>> others;
      for (const int leaf : given_) {
        const Node& node = graph_.node(leaf);
        if (!needed_[static_cast<std::size_t>(leaf)] || node.primitive != Primitive::input) continue;
        int own = -1;
        for (int k = 0; k < node.shape.rank && own < 0; ++k)
          if (node.shape[k] == n && (node.shape.rank < whole.rank || k == axis)) own = k;
        if (own >= 0) others.emplace_back(leaf, along(values(leaf), node.shape, own, dealt));
      }
      if (others.empty() || !going_ || (left_ -= cost_) < 0) return;
      const Values out = evaluator_.value_if(std::move(others), target_);
      with(target_.id, along(out, whole, axis, back),
           placed(fmt::format("with the {} elements along axis {} dealt out to {} groups in turn, where they stand in "
                              "blocks: interleaved",
                              n, axis, groups)));
    }
  }
}

void FormulaChanges::places_of_leaf(int id) {
  const Node& node = graph_.node(id);
  if (node.shape.count() < 2 || node.primitive != Primitive::input) return;
  another_order(id);
  stale_tiles(id);
  repeated(id);
  spread_along(id);
}

void FormulaChanges::places_of_sums(int id) {
  const Node& node = graph_.node(id);
  const bool sum = node.primitive == Primitive::sum;
  if (!sum && node.primitive != Primitive::max) return;
  if (node.shape.count() > 1 && id != target_.id) another_order(id);
  shared_by_rows(id);
  terms_left_out(id);
  another_reduction(id);
  if (!sum) return;
  padded_terms(id);
  means_of_blocks(id);
  function_of_mean(id);
}

void FormulaChanges::places() {
  if (enters(-1)) {
    another_order(target_.id);
    spread_along(target_.id);
    tiles_transposed(target_.id);
    axes_in_turn(target_.id);
    dealt_out();
    sums_together();
  }
  for (std::size_t id = needed_.size(); id-- > 0 && going_;) {
    if (!needed_[id] || !enters(static_cast<int>(id))) continue;
    const auto node_id = static_cast<int>(id);
    const Node& node = graph_.node(node_id);
    if (given(node_id)) {
      places_of_leaf(node_id);
      continue;
    }
    places_of_sums(node_id);
    if (node.primitive == Primitive::stored && node.shape.count() > 1) another_order(node_id);
    if (node.primitive == Primitive::less || node.primitive == Primitive::less_equal) edge_moved(node_id);
    if (node.primitive == Primitive::matmul) products_left_out(node_id);
    if (node.primitive == Primitive::sqrt || node.primitive == Primitive::rsqrt) other_norm(node_id);
    if (node.primitive == Primitive::first_max) winner_moved(node_id);
    if (node.primitive == Primitive::put_add) ends_left_out(node.args[0]);
    if (node.primitive == Primitive::cumsum) moving_sums(node_id);
  }
}

}  // namespace ampcheck::reference
