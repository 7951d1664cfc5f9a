// SPDX-License-Identifier: Apache-2.0
// Changes that follow from a formula alone: each kind is named of a kernel that has it, and not of one that is wrong
// nearby; right kernels have none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using Values = std::vector<double>;

/// y of x, and of w where the formula has one (empty otherwise), in rows of so many columns.
using Body = Values (*)(const Values& x, const Values& w, std::size_t columns);

/// `columns`: of x, in 8 rows. `of_w`: dimensions of w, if there is one.
struct Kind {
  const char* name;
  int columns;
  const char *of_w, *formula;
  Body right, wrong;
  const char* words;
  Body nearby;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

template <class F>
Values each(const Values& x, F f) {
  Values out;
  for (const double v : x) out.push_back(f(v));
  return out;
}
/// f(x, w), where w may repeat from row to row.
template <class F>
Values both(const Values& x, const Values& w, F f) {
  Values out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(f(x[i], w[i % w.size()]));
  return out;
}
/// Row by row: f(row, w, out).
template <class F>
Values rows(const Values& x, std::size_t columns, F f) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += columns)
    f(Values(x.begin() + static_cast<std::ptrdiff_t>(row), x.begin() + static_cast<std::ptrdiff_t>(row + columns)),
      out);
  return out;
}
/// Each row with its element k from place(k).
template <class F>
Values placed(const Values& x, std::size_t columns, F place) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    for (std::size_t k = 0; k < row.size(); ++k) out.push_back(row[place(k)]);
  });
}
Values exp_of(const Values& x) {
  return each(x, [](double v) { return std::exp(v); });
}
template <class F>
Values sums(const Values& x, std::size_t columns, F weight) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    double sum = 0;
    for (std::size_t k = 0; k < row.size(); ++k) sum += weight(k) * row[k];
    out.push_back(sum);
  });
}
/// The largest of the elements that count.
template <class F>
Values maxima(const Values& x, std::size_t columns, F counts) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    double most = -HUGE_VAL;
    for (std::size_t k = 0; k < row.size(); ++k)
      if (counts(k)) most = std::max(most, row[k]);
    out.push_back(most);
  });
}
Values windows(const Values& x, std::size_t columns, std::size_t window) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    for (std::size_t k = 0; k < row.size(); ++k) {
      out.push_back(0);
      for (std::size_t j = k + 1 > window ? k + 1 - window : 0; j <= k; ++j) out.back() += row[j];
    }
  });
}
/// x where it is the largest of its row, moved so many places on, 0 elsewhere.
Values winners(const Values& x, std::size_t columns, std::size_t on) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    const auto at = static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
    for (std::size_t k = 0; k < row.size(); ++k) out.push_back(k == (at + on) % row.size() ? row[k] : 0);
  });
}
/// Rows brought to mean 0 and variance 1, both of their first elements.
Values normalized(const Values& x, std::size_t columns, std::size_t first) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    double mean = 0, squares = 0;
    for (std::size_t k = 0; k < first; ++k) mean += row[k] / static_cast<double>(first);
    for (std::size_t k = 0; k < first; ++k) squares += std::pow(row[k] - mean, 2) / static_cast<double>(first);
    for (const double v : row) out.push_back((v - mean) / std::sqrt(squares + 0.1));
  });
}
Values by_norm(const Values& x, std::size_t columns, double (*norm)(const Values& row)) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    for (const double v : row) out.push_back(v / norm(row));
  });
}
double mean_of(const Values& row, double (*f)(double v)) {
  double sum = 0;
  for (const double v : row) sum += f(v);
  return sum / static_cast<double>(row.size());
}
Values softmax(const Values& x, std::size_t columns, double added) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    const double sum = added + static_cast<double>(row.size()) * mean_of(row, [](double v) { return std::exp(v); });
    for (const double v : row) out.push_back(std::exp(v) / sum);
  });
}
/// x w less the mean of x w, with the weight taken in late.
Values weighed(const Values& x, const Values& w, std::size_t columns, bool late, double times) {
  return rows(x, columns, [&](const Values& row, Values& out) {
    double mean = 0;
    for (std::size_t k = 0; k < row.size(); ++k)
      mean += row[k] * (late ? 1 : w[k]) / static_cast<double>(row.size()) * times;
    for (std::size_t k = 0; k < row.size(); ++k) out.push_back(late ? w[k] * (row[k] - mean) : row[k] * w[k] - mean);
  });
}
double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }
Values silu(const Values& x, double factor, double added) {
  return each(x, [=](double v) { return v * sigmoid(factor * v + added); });
}

const Kind kKinds[] = {
    {"another_function", 16, "", "y = tanh(x)",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return std::tanh(v); }); },
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v / (1 + std::fabs(v)); });
     },
     "with v / (1 + |v|) for tanh(v) of x",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v / (1 + 0.9 * std::fabs(v)); });
     }},
    {"something_between", 16, "D", "y = w * exp(x)",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return a * std::exp(v); });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return (1 + a) * std::exp(v); });
     },
     "with 1 + v for v of w",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return (1.25 + a) * std::exp(v); });
     }},
    {"another_operand", 16, "N D", "y = exp(x) * x + w",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(v) * v + a; });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(a) * v + a; });
     },
     "with w for x in exp(x)",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(0.9 * a) * v + a; });
     }},
    {"inputs_exchanged", 16, "N D", "y = x * x * exp(w)",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return v * v * std::exp(a); });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return a * a * std::exp(v); });
     },
     "with x and w exchanged",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return a * a * std::exp(1.1 * v); });
     }},
    {"joined", 16, "D", "y = exp(x) + w",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(v) + a; });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(v) * a + a; });
     },
     "with exp(x) times w for exp(x)",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double a) { return std::exp(v) * a * a + a; });
     }},
    {"factor_on_all", 16, "D", "p = x * w; y = p - mean(p, -1)",
     [](const Values& x, const Values& w, std::size_t n) { return weighed(x, w, n, false, 1); },
     [](const Values& x, const Values& w, std::size_t n) { return weighed(x, w, n, true, 1); },
     "with the factor w on all of it, not on x alone",
     [](const Values& x, const Values& w, std::size_t n) { return weighed(x, w, n, true, 1.1); }},
    {"constant_moved", 16, "", "y = 0.3 * expm1(x) + x",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return 0.3 * std::expm1(v) + v; });
     },
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return std::expm1(0.3 * v) + v; });
     },
     "with the factor 0.3 on x in expm1(x), not on expm1(x)",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return std::expm1(0.4 * v) + v; });
     }},
    {"factor_found", 16, "", "y = x * sigmoid(x)",
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1, 0); },
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1.3, 0); },
     "with a factor of 1.3 on x in sigmoid(x)",
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1.3, 0.1); }},
    {"addend_found", 16, "", "y = x * sigmoid(x)",
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1, 0); },
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1, 0.7); }, "with 0.7 added to x in sigmoid(x)",
     [](const Values& x, const Values&, std::size_t) { return silu(x, 1.3, 0.7); }},
    {"clipped", 16, "", "y = x * exp(x)",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * std::exp(v); }); },
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v * std::exp(std::min(v, 0.25)); });
     },
     "it is clipped, or saturates",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v * std::exp(1.1 * std::min(v, 0.25)); });
     }},
    {"another_edge", 16, "", "y = where(x < 0.25, x, x + exp(x))",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v < 0.25 ? v : v + std::exp(v); });
     },
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v < 0.9 ? v : v + std::exp(v); });
     },
     "another edge of the condition",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v < 0.9 ? v : v + 2 * std::exp(v); });
     }},
    {"pairs_exchanged", 16, "", "y = exp(x)", [](const Values& x, const Values&, std::size_t) { return exp_of(x); },
     [](const Values& x, const Values&, std::size_t n) {
       return placed(exp_of(x), n, [](std::size_t k) { return k ^ 1; });
     },
     "with the elements of each pair exchanged",
     [](const Values& x, const Values&, std::size_t n) {
       return placed(exp_of(x), n, [n](std::size_t k) { return (5 * k + 3) % n; });
     }},
    {"stale_tile", 16, "", "y = exp(x)", [](const Values& x, const Values&, std::size_t) { return exp_of(x); },
     [](const Values& x, const Values&, std::size_t n) {
       return placed(exp_of(x), n, [](std::size_t k) { return k % 4; });
     },
     "with the first tile of 4 of x along axis 1 for the next one",
     [](const Values& x, const Values&, std::size_t n) {
       return placed(exp_of(x), n, [](std::size_t k) { return k % 5; });
     }},
    {"repeated", 16, "D", "y = x + w",
     [](const Values& x, const Values& w, std::size_t) { return both(x, w, [](double v, double a) { return v + a; }); },
     [](const Values& x, const Values& w, std::size_t n) {
       // At other extents it is right: what it does there would be another change.
       return both(x, placed(w, n, [=](std::size_t k) { return n == 16 ? k / 4 : k; }),
                   [](double v, double a) { return v + a; });
     },
     "with each of the first 4 elements for 4 in a row of w",
     [](const Values& x, const Values& w, std::size_t n) {
       return both(x, placed(w, n, [](std::size_t k) { return k / 5; }), [](double v, double a) { return v + a; });
     }},
    {"winner_moved", 16, "", "y = x * first_max(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return winners(x, n, 0); },
     [](const Values& x, const Values&, std::size_t n) { return winners(x, n, 1); },
     "with the place after it: off by one",
     [](const Values& x, const Values&, std::size_t n) { return winners(x, n, 2); }},
    {"another_reduction", 16, "", "y = max(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return maxima(x, n, [](std::size_t) { return true; }); },
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [=](std::size_t) { return 1 / double(n); });
     },
     "with the mean for the maximum of x",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [=](std::size_t k) { return k < 4 ? 0.4 : 0.; });
     }},
    {"part_of_a_maximum", 15, "", "y = max(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return maxima(x, n, [](std::size_t) { return true; }); },
     [](const Values& x, const Values&, std::size_t n) {
       return maxima(x, n, [](std::size_t k) { return k % 3 == 0; });
     },
     "with only every 3. term: a stride",
     [](const Values& x, const Values&, std::size_t n) {
       return maxima(x, n, [](std::size_t k) { return k % 4 == 0; });
     }},
    {"mean_of_means", 18, "", "y = mean(x, -1)",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [=](std::size_t) { return 1 / double(n); });
     },
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [=](std::size_t k) { return n != 18 ? 1 / double(n) : k < 16 ? 1 / 32. : 1 / 4.; });
     },
     "with blocks of 16 of x that weigh alike",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [](std::size_t k) { return k < 14 ? 1 / 28. : 1 / 8.; });
     }},
    {"moving_sums", 16, "", "y = cumsum(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return windows(x, n, n); },
     [](const Values& x, const Values&, std::size_t n) { return windows(x, n, 4); },
     "with the last 4 terms alone of the cumulative sum of x",
     [](const Values& x, const Values&, std::size_t n) { return windows(x, n, 5); }},
    {"first_term_twice", 16, "", "y = sum(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return sums(x, n, [](std::size_t) { return 1.; }); },
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [](std::size_t k) { return k == 0 ? 2. : 1.; });
     },
     "with the first term of the sum of x twice",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [](std::size_t k) { return k == 1 ? 2. : 1.; });
     }},
    {"every_sum_cut_short", 16, "", "c = x - mean(x, -1); y = c * rsqrt(mean(c * c, -1) + 0.1)",
     [](const Values& x, const Values&, std::size_t n) { return normalized(x, n, n); },
     [](const Values& x, const Values&, std::size_t n) { return normalized(x, n, n / 2); },
     "in every sum over 16, and its mean over these",
     [](const Values& x, const Values&, std::size_t n) { return normalized(x, n, 5); }},
    {"padded_rows", 7, "", "y = exp(x) / sum(exp(x), -1)",
     [](const Values& x, const Values&, std::size_t n) { return softmax(x, n, 0); },
     [](const Values& x, const Values&, std::size_t n) { return softmax(x, n, n == 7 ? 9 : 0); },
     "with 9 further terms in the sum of exp(x), as of rows that are padded with zeros to 16",
     [](const Values& x, const Values&, std::size_t n) { return softmax(x, n, 9.5); }},
    {"another_norm", 16, "", "y = x * rsqrt(mean(x * x, -1) + 0.01)",
     [](const Values& x, const Values&, std::size_t n) {
       return by_norm(x, n,
                      [](const Values& row) { return std::sqrt(mean_of(row, [](double v) { return v * v; }) + 0.01); });
     },
     [](const Values& x, const Values&, std::size_t n) {
       return by_norm(x, n,
                      [](const Values& row) { return mean_of(row, [](double v) { return std::fabs(v); }) + 0.01; });
     },
     "with the mean size of x for the root of its mean square",
     [](const Values& x, const Values&, std::size_t n) {
       return by_norm(x, n,
                      [](const Values& row) { return mean_of(row, [](double v) { return std::fabs(v); }) + 0.1; });
     }},
    {"blocks_overlap", 16, "", "y = sum(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return sums(x, n, [](std::size_t) { return 1.; }); },
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [&](std::size_t k) { return k % 4 == 3 && k + 1 < n ? 2. : 1.; });
     },
     "with the last of each block of 4 counted twice",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [&](std::size_t k) { return k % 4 == 2 && k != 6 ? 2. : 1.; });
     }},
    {"mean_of_a_part", 16, "", "y = mean(x, -1)",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [&](std::size_t) { return 1. / static_cast<double>(n); });
     },
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [&](std::size_t k) { return k < n / 2 ? 2. / static_cast<double>(n) : 0; });
     },
     "and divided by the number of these, in the mean of x",
     [](const Values& x, const Values&, std::size_t n) {
       return sums(x, n, [&](std::size_t k) { return k < n / 2 ? 1.9 / static_cast<double>(n) : 0; });
     }},
    {"short_expression", 16, "D", "y = tanh(x) * w",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return std::tanh(v) * f; });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return (1 - std::tanh(v) * std::tanh(v)) * f; });
     },
     "with w times the slope of tanh at v for v of x in the place of all of it: another expression",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return (1 - std::tanh(v) * std::tanh(v)) * f * f; });
     }},
    {"mean_so_far", 16, "", "y = cumsum(x, -1)",
     [](const Values& x, const Values&, std::size_t n) { return windows(x, n, n); },
     [](const Values& x, const Values&, std::size_t n) {
       Values out = windows(x, n, n);
       for (std::size_t i = 0; i < out.size(); ++i) out[i] /= static_cast<double>(i % n + 1);
       return out;
     },
     "1/v for v of the place along axis 1",
     [](const Values& x, const Values&, std::size_t n) {
       Values out = windows(x, n, n);
       for (std::size_t i = 0; i < out.size(); ++i) out[i] /= static_cast<double>(i % n) + 1.3;
       return out;
     }},
    {"in_one_use", 16, "D", "u = x * w; y = exp(u) + tanh(u)",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return std::exp(v * f) + std::tanh(v * f); });
     },
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return std::exp(std::sqrt(std::fabs(v * f))) + std::tanh(v * f); });
     },
     "with sqrt(|v|) for v of x * w, in exp(x * w) alone",
     [](const Values& x, const Values& w, std::size_t) {
       return both(x, w, [](double v, double f) { return std::exp(std::cbrt(std::fabs(v * f))) + std::tanh(v * f); });
     }},
};

OpDef op_of_kind(const Kind& kind, Body body) {
  OpDef op;
  op.signature = {.name = "small",
                  .inputs = {{.name = "x", .dims = "N D", .differentiable = false}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {8, 3}}, {"D", {kind.columns}}}};
  if (*kind.of_w != 0) op.signature.inputs.push_back({.name = "w", .dims = kind.of_w, .differentiable = false});
  op.forms = {reference::form_from_text(op.signature, "formula", kind.formula)};
  op.kernel.forward = [body](const kernels::KernelCall& call) {
    const TensorView* const w = call.find("w");
    Values y = body(to_doubles(call.at("x")), w == nullptr ? Values() : to_doubles(*w),
                    static_cast<std::size_t>(call.at("x").shape.last()));
    round_values(kFp32, RoundingMode{}, y, y);
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall&) {};
  return op;
}

std::string cause_of(const Kind& kind, Body body) {
  const OpDef op = op_of_kind(kind, body);
  const std::string call = "small(x=fp32[8," + std::to_string(kind.columns) + "],seed=1)";
  const CaseResult result = run_case(op, parse_call(call, op.signature), {});
  const CheckResult* const check = deciding_check(result);
  return check == nullptr || check->code == Code::none ? "nothing found"
                                                       : std::string(ampcheck::name(check->code)) + " " + check->cause;
}

class FurtherChanges : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, FurtherChanges, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(FurtherChanges, AreNamedAndNotSaidOfOthers) {
  const Kind& kind = GetParam();
  EXPECT_EQ(cause_of(kind, kind.right), "nothing found");
  const std::string named = cause_of(kind, kind.wrong), nearby = cause_of(kind, kind.nearby);
  EXPECT_TRUE(contains(named, kind.words)) << named;
  EXPECT_FALSE(contains(nearby, kind.words)) << nearby;
  EXPECT_NE(nearby, "nothing found");
}

/// Kernels whose numbers follow from no change of the formula: nothing is claimed of them.
TEST(FurtherChanges, AreNotSaidOfNoise) {
  const Kind& kind = kKinds[0];
  for (const double size : {1e-3, 0.1, 2.0}) {
    static double noise = 0;
    noise = size;
    const std::string cause = cause_of(kind, [](const Values& x, const Values&, std::size_t) {
      Values out;
      for (std::size_t i = 0; i < x.size(); ++i)
        out.push_back(std::tanh(x[i]) + noise * std::sin(static_cast<double>(i * i) * 1.7 + 0.3));
      return out;
    });
    EXPECT_FALSE(contains(cause, "these are the values")) << cause;
    EXPECT_NE(cause, "nothing found");
  }
}

/// A number that is found at one element says nothing of that element: of few others it is not claimed.
TEST(FurtherChanges, ANumberThatIsFoundAtTheOnlyWrongElementIsNotClaimed) {
  const CaseResult result = [] {
    const OpDef& op = *find_op("softplus.early_line");
    return run_case(op, parse_call("softplus.early_line(x=bf16[5,7],beta=3,seed=1)", op.signature), {});
  }();
  ASSERT_NE(deciding_check(result), nullptr);
  EXPECT_FALSE(contains(deciding_check(result)->cause, "these are the values")) << deciding_check(result)->cause;
}

/// A function that is off by next to nothing everywhere, and to one side, is one of few digits: a contract's. A
/// constant factor of the same size is a bug, and so are errors that are larger, or that half of the numbers do not
/// have.
TEST(FurtherChanges, NextToNothingEverywhereIsAFunctionOfFewDigits) {
  const Kind& shape = kKinds[0];
  const Kind kind{"few_digits", shape.columns, "", "y = exp(x)", nullptr, nullptr, "", nullptr};
  static double size = 0;
  static bool every = true, varies = true;
  const auto code = [&](double of, bool of_all, bool other_factors) {
    size = of;
    every = of_all;
    varies = other_factors;
    return cause_of(kind, [](const Values& x, const Values&, std::size_t) {
      Values out;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double share = varies ? 0.3 + 0.35 * (1 + std::sin(static_cast<double>(i * i) * 1.7)) : 1;
        out.push_back(std::exp(x[i]) * (1 + (every || i % 2 == 0 ? size * share : 0)));
      }
      return out;
    });
  };
  const std::string rough = code(0x1p-12, true, true), factor = code(0x1p-12, true, false),
                    large = code(0x1p-5, true, true), half = code(0x1p-12, false, true);
  EXPECT_TRUE(rough.starts_with("AC304")) << rough;
  EXPECT_TRUE(factor.starts_with("AC101")) << factor;
  EXPECT_TRUE(large.starts_with("AC101")) << large;
  EXPECT_TRUE(half.starts_with("AC101")) << half;
}

/// A fraction in the place of a function is one of few digits where it is near it, and another function where it is
/// not.
TEST(FurtherChanges, AFractionFarFromTheFunctionIsABug) {
  for (const auto& [call, code] : {std::pair{"gelu_tanh.rational_tanh(x=fp32[2,1025],seed=1)", Code::ac304},
                                   std::pair{"tanh.rational(x=fp32[5,7],seed=1)", Code::ac101}}) {
    const OpDef& op = *find_op(std::string(call).substr(0, std::string(call).find('(')));
    const CaseResult result = run_case(op, parse_call(call, op.signature), {});
    EXPECT_EQ(result.code, code) << call;
    ASSERT_NE(deciding_check(result), nullptr);
    EXPECT_TRUE(contains(deciding_check(result)->cause, "an approximation of few digits"))
        << deciding_check(result)->cause;
  }
}

/// A backward that is another function of the cotangent than a linear one breaks a relation, whatever else it is.
TEST(FurtherChanges, NotLinearInTheCotangentIsStructural) {
  const OpDef& op = *find_op("relu.guided");
  const CaseResult result = run_case(op, parse_call("relu.guided(x=fp32[5,7],seed=1)", op.signature), {});
  EXPECT_EQ(result.code, Code::ac407);
  ASSERT_NE(deciding_check(result), nullptr);
  EXPECT_TRUE(contains(deciding_check(result)->cause, "with max(dy, 0) for dy: not linear in the cotangent"));
}

/// A kernel that a changed formula fits at this case's data alone: at other data, or at other extents, it writes other
/// numbers. What fits everywhere stays (AreNamedAndNotSaidOfOthers).
TEST(FurtherChanges, WhatFitsOneCaseAloneIsNotSaid) {
  static const Kind* kind = nullptr;
  static Values first;
  static bool other_data = false;
  const Body coincides = [](const Values& x, const Values& w, std::size_t n) {
    if (first.empty()) first = x;
    if (other_data ? x == first : x.size() == first.size()) return kind->wrong(x, w, n);
    Values out = kind->right(x, w, n);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += std::sin(static_cast<double>(i * i) * 1.7 + 0.3);
    return out;
  };
  int said_of_all = 0;
  for (const Kind& one : kKinds) {
    kind = &one;
    said_of_all += contains(cause_of(one, one.wrong), "these are the values");
    for (const bool data : {true, false}) {
      if (!data && one.name == std::string_view("part_of_a_maximum")) continue;  // its stride divides no other extent
      other_data = data;
      first.clear();
      const std::string cause = cause_of(one, coincides);
      EXPECT_NE(cause, "nothing found") << one.name;
      // What the kernel does at all data of these extents is said of these extents alone.
      EXPECT_TRUE(!contains(cause, one.words) || (!data && cause.ends_with(", at these extents")))
          << one.name << (data ? ", other data: " : ", other extents: ") << cause;
    }
  }
  EXPECT_GE(said_of_all, 5) << "of the same kernels without the coincidence";
}

}  // namespace
}  // namespace ampcheck::checks
