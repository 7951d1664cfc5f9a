// SPDX-License-Identifier: Apache-2.0
// The language of formulas. An op's mathematics is written once over whole tensors with NumPy's broadcasting; running
// it records a Graph over about thirty primitives, which every arithmetic interprets and which differentiates into
// another graph of the same kind.
//
// Reductions keep their axis with extent 1, so that their result broadcasts back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/op_signature.h"
#include "src/tensor.h"

namespace ampcheck::reference {

enum class Primitive : std::uint8_t {
  input,      // leaf: a tensor of the case, a saved value, a cotangent
  constant,   // leaf: one number, a ball of radius u|c| unless representable (rule R8)
  indicator,  // leaf: fixed 0/1 or small integers known when recording (masks, one-hot targets)
  add,
  sub,
  neg,
  mul,
  div,
  square,
  exp,
  expm1,
  log,
  log1p,
  tanh,
  erf,
  erfc,
  sin,
  cos,
  sqrt,
  rsqrt,
  pow,
  sigmoid,
  abs,
  sign,
  less,
  less_equal,
  equal,
  where,
  maximum,
  sum,
  max,
  first_max,  // first_max: 1 at the first maximum along the axis, else 0
  cumsum,     // element i along the axis is the sum of elements 0 to i
  matmul,     // batched over leading axes, either operand transposed
  take,       // y[i] = x[map[i]], 0 where map[i] < 0: gather, slice, pad, transpose, broadcast, unfold
  put_add,    // y[map[i]] += x[i]: scatter_add, fold; the adjoint of take
  reshape,
  stored,         // an intermediate that the kernel may keep in the saved type
  stop_gradient,  // a shift that cancels: no adjoint, no radius (the certificate proves it)
  no_gradient,    // has a derivative, but by the op's convention no gradient: held fixed when differenced
  own_adjoint,    // identity in value, with an adjoint of its own: a form of the backward
};
inline constexpr int kPrimitives = static_cast<int>(Primitive::own_adjoint) + 1;

/// "exp", "matmul", ...
const char* name(Primitive primitive);

class Graph;

/// A node of a graph; cheap to copy. Operators record new nodes.
struct Expr {
  Graph* graph = nullptr;
  int id = -1;

  const Shape& shape() const;
  bool defined() const { return graph != nullptr; }
};

using Map = std::shared_ptr<const std::vector<std::int64_t>>;
/// Gradient contributions for the arguments of an own_adjoint node, from the cotangent of its value.
using AdjointRule = std::function<std::vector<Expr>(Expr cotangent)>;

struct Node {
  Primitive primitive = Primitive::input;
  std::vector<int> args;
  Shape shape;
  double value = 0;  // constant: nearest double; its exact value is `name` where that is set
  int axis = 0;      // sum, max, first_max, cumsum
  bool transpose_a = false, transpose_b = false;
  bool reversed = false;  // cumsum: of element i to the last
  Map map;                // take, put_add; indicator's values
  std::string name;       // input, stored; constant: see named_constant(); no_gradient: the convention in words
  AdjointRule adjoint;    // own_adjoint
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Expr input(const std::string& name, const Shape& shape);
  Expr record(Node node);
  const std::deque<Node>& nodes() const { return nodes_; }
  const Node& node(int id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Expr at(int id) { return {this, id}; }

  /// Lets a node take another argument of the same shape: a rounding that is put in behind it.
  void replace_argument(int node, int was, int is);

  /// Gradients of sum_i <cotangent_i, output_i> with respect to `inputs`, as nodes of this graph; zeros where an output
  /// does not depend on an input.
  std::vector<Expr> vjp(const std::vector<Expr>& outputs, const std::vector<Expr>& cotangents,
                        const std::vector<Expr>& inputs);

 private:
  std::deque<Node> nodes_;  // a deque: references to nodes stay valid while recording
};

// Elementwise, with broadcasting.
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator-(Expr x);
Expr operator+(double a, Expr b);
Expr operator+(Expr a, double b);
Expr operator-(double a, Expr b);
Expr operator-(Expr a, double b);
Expr operator*(double a, Expr b);
Expr operator*(Expr a, double b);
Expr operator/(double a, Expr b);
Expr operator/(Expr a, double b);
Expr square(Expr x);
Expr exp(Expr x);
Expr expm1(Expr x);
Expr log(Expr x);
Expr log1p(Expr x);
Expr tanh(Expr x);
Expr erf(Expr x);
Expr erfc(Expr x);
Expr sin(Expr x);  ///< of radians, like cos
Expr cos(Expr x);
Expr sqrt(Expr x);
Expr rsqrt(Expr x);
/// x^exponent: NaN where x < 0 and the exponent is no whole number, 1 where the exponent is 0.
Expr pow(Expr x, Expr exponent);
Expr sigmoid(Expr x);
Expr abs(Expr x);
Expr maximum(Expr a, Expr b);
Expr less(Expr a, Expr b);  ///< 1 where a < b, else 0; no adjoint
Expr less_equal(Expr a, Expr b);
Expr equal(Expr a, Expr b);
Expr where(Expr condition, Expr yes, Expr no);

// Reductions along one axis (negative: from the end); the axis stays with extent 1.
Expr sum(Expr x, int axis);
Expr mean(Expr x, int axis);
Expr max(Expr x, int axis);
Expr first_max(Expr x, int axis);
/// Sums of the elements up to each one along an axis; `reversed`: from each one on.
Expr cumsum(Expr x, int axis, bool reversed = false);
/// Sum over every axis: shape [1].
Expr sum_all(Expr x);

/// Batched product over the leading axes: a [..., n, k], b [..., k, m] after the optional transposes.
Expr matmul(Expr a, Expr b, bool transpose_a = false, bool transpose_b = false);

// Movement.
Expr reshape(Expr x, const Shape& shape);
Expr transpose(Expr x, std::span<const int> order);
Expr slice(Expr x, int axis, std::int64_t begin, std::int64_t end);
Expr take(Expr x, std::vector<std::int64_t> map, const Shape& shape);
Expr put_add(Expr x, std::vector<std::int64_t> map, const Shape& shape);
Expr take_by(Expr x, Map map, const Shape& shape);  ///< these share the map
Expr put_add_by(Expr x, Map map, const Shape& shape);
/// Rows of a table [V, D] by index: [n, D]; a negative index gives zeros.
Expr gather_rows(Expr table, const std::vector<std::int64_t>& index);
Expr concat(const std::vector<Expr>& parts, int axis);
/// Windows of an image [N,C,H,W]: [N, C*kh*kw, oh*ow], outside the image `map` -1 (reads 0).
Expr unfold(Expr image, int kh, int kw, int stride, int padding);
/// The same with a window a row: [N, oh*ow, C*kh*kw].
Expr patches(Expr image, int kh, int kw, int stride, int padding);
/// Output extent of a window operation.
std::int64_t window_extent(std::int64_t extent, int kernel, int stride, int padding);

/// Fixed whole numbers known when recording (a mask, a one-hot target).
Expr indicator(Graph& graph, const Shape& shape, std::vector<std::int64_t> values);
Expr constant(Graph& graph, double value);
/// A constant that is no double, so that 100 digits evaluate it as what it is: a fraction "1/3", "1/sqrt(2)",
/// "2/sqrt(pi)", "sqrt(2/pi)", "1/sqrt(2 pi)", "log(2)", "1/log(2)" or "pi". Error on any other name.
Expr named_constant(Graph& graph, const std::string& name);

// Marks.
Expr stored(const std::string& name, Expr x);
Expr stop_gradient(Expr x);
/// x, through which by convention no gradient flows although the value depends on it. `convention` says what it is
/// ("rows at padding_idx"); certificates hold the value fixed while differencing and name the convention.
Expr no_gradient(const std::string& convention, Expr x);
Expr own_adjoint(Expr value, const std::vector<Expr>& arguments, AdjointRule rule);

/// Sum of g over the axes that broadcasting stretched, so that it has `shape` again.
Expr sum_to(Expr g, const Shape& shape);
/// The common shape of two operands; Error if they do not broadcast.
Shape broadcast_shape(const Shape& a, const Shape& b);

}  // namespace ampcheck::reference
