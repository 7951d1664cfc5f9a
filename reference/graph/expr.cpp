// SPDX-License-Identifier: Apache-2.0
#include "reference/graph/expr.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <numbers>
#include <numeric>

#include "reference/graph/strided.h"
#include "src/error.h"

namespace ampcheck::reference {

const char* name(Primitive primitive) {
  static constexpr const char* kNames[kPrimitives] = {
      "input",   "constant", "indicator",     "add",         "sub",        "neg",    "mul",    "div",        "square",
      "exp",     "expm1",    "log",           "log1p",       "tanh",       "erf",    "erfc",   "sin",        "cos",
      "sqrt",    "rsqrt",    "pow",           "sigmoid",     "abs",        "sign",   "less",   "less_equal", "equal",
      "where",   "maximum",  "sum",           "max",         "first_max",  "cumsum", "matmul", "take",       "put_add",
      "reshape", "stored",   "stop_gradient", "no_gradient", "own_adjoint"};
  return kNames[static_cast<int>(primitive)];
}

const Shape& Expr::shape() const { return graph->node(id).shape; }

Expr Graph::record(Node node) {
  nodes_.push_back(std::move(node));
  return {this, static_cast<int>(nodes_.size()) - 1};
}

void Graph::replace_argument(int node, int was, int is) {
  for (int& arg : nodes_[static_cast<std::size_t>(node)].args)
    if (arg == was) arg = is;
}

Expr Graph::input(const std::string& name, const Shape& shape) {
  Node node;
  node.name = name;
  node.shape = shape;
  return record(std::move(node));
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  Shape out;
  out.rank = std::max(a.rank, b.rank);
  for (int i = 0; i < out.rank; ++i) {
    const std::int64_t x = i < a.rank ? a.last(i) : 1, y = i < b.rank ? b.last(i) : 1;
    if (x != y && x != 1 && y != 1)
      throw Error("[formula] shapes do not broadcast, got " + a.str() + " and " + b.str());
    out[out.rank - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

namespace {

Expr elementwise(Primitive primitive, std::initializer_list<Expr> args) {
  Node node;
  node.primitive = primitive;
  node.shape = args.begin()->shape();
  for (const Expr& arg : args) {
    node.args.push_back(arg.id);
    node.shape = broadcast_shape(node.shape, arg.shape());
  }
  return args.begin()->graph->record(std::move(node));
}

Expr reduce(Primitive primitive, Expr x, int axis) {
  Node node;
  node.primitive = primitive;
  node.axis = axis < 0 ? axis + x.shape().rank : axis;
  if (node.axis < 0 || node.axis >= x.shape().rank)
    throw Error("[formula] axis out of range, got " + std::to_string(axis) + " for " + x.shape().str());
  node.shape = x.shape();
  if (primitive != Primitive::first_max && primitive != Primitive::cumsum) node.shape[node.axis] = 1;
  node.args = {x.id};
  return x.graph->record(std::move(node));
}

Expr identity(Primitive primitive, Expr x) {
  Node node;
  node.primitive = primitive;
  node.shape = x.shape();
  node.args = {x.id};
  return x.graph->record(std::move(node));
}

Expr mapped(Primitive primitive, Expr x, Map map, const Shape& shape) {
  Node node;
  node.primitive = primitive;
  node.shape = shape;
  node.args = {x.id};
  node.map = std::move(map);
  return x.graph->record(std::move(node));
}

Map map_of(std::vector<std::int64_t> values) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(values));
}

}  // namespace

Expr operator+(Expr a, Expr b) { return elementwise(Primitive::add, {a, b}); }
Expr operator-(Expr a, Expr b) { return elementwise(Primitive::sub, {a, b}); }
Expr operator*(Expr a, Expr b) { return elementwise(Primitive::mul, {a, b}); }
Expr operator/(Expr a, Expr b) { return elementwise(Primitive::div, {a, b}); }
Expr operator-(Expr x) { return elementwise(Primitive::neg, {x}); }
Expr operator+(double a, Expr b) { return constant(*b.graph, a) + b; }
Expr operator+(Expr a, double b) { return a + constant(*a.graph, b); }
Expr operator-(double a, Expr b) { return constant(*b.graph, a) - b; }
Expr operator-(Expr a, double b) { return a - constant(*a.graph, b); }
Expr operator*(double a, Expr b) { return constant(*b.graph, a) * b; }
Expr operator*(Expr a, double b) { return a * constant(*a.graph, b); }
Expr operator/(double a, Expr b) { return constant(*b.graph, a) / b; }
Expr operator/(Expr a, double b) { return a / constant(*a.graph, b); }
Expr square(Expr x) { return elementwise(Primitive::square, {x}); }
Expr exp(Expr x) { return elementwise(Primitive::exp, {x}); }
Expr expm1(Expr x) { return elementwise(Primitive::expm1, {x}); }
Expr log(Expr x) { return elementwise(Primitive::log, {x}); }
Expr log1p(Expr x) { return elementwise(Primitive::log1p, {x}); }
Expr tanh(Expr x) { return elementwise(Primitive::tanh, {x}); }
Expr erf(Expr x) { return elementwise(Primitive::erf, {x}); }
Expr erfc(Expr x) { return elementwise(Primitive::erfc, {x}); }
Expr sin(Expr x) { return elementwise(Primitive::sin, {x}); }
Expr cos(Expr x) { return elementwise(Primitive::cos, {x}); }
Expr sqrt(Expr x) { return elementwise(Primitive::sqrt, {x}); }
Expr rsqrt(Expr x) { return elementwise(Primitive::rsqrt, {x}); }
Expr pow(Expr x, Expr exponent) { return elementwise(Primitive::pow, {x, exponent}); }
Expr sigmoid(Expr x) { return elementwise(Primitive::sigmoid, {x}); }
Expr abs(Expr x) { return elementwise(Primitive::abs, {x}); }
Expr maximum(Expr a, Expr b) { return elementwise(Primitive::maximum, {a, b}); }
Expr less(Expr a, Expr b) { return elementwise(Primitive::less, {a, b}); }
Expr less_equal(Expr a, Expr b) { return elementwise(Primitive::less_equal, {a, b}); }
Expr equal(Expr a, Expr b) { return elementwise(Primitive::equal, {a, b}); }
Expr where(Expr condition, Expr yes, Expr no) { return elementwise(Primitive::where, {condition, yes, no}); }

Expr sum(Expr x, int axis) { return reduce(Primitive::sum, x, axis); }
Expr max(Expr x, int axis) { return reduce(Primitive::max, x, axis); }
Expr first_max(Expr x, int axis) { return reduce(Primitive::first_max, x, axis); }
Expr cumsum(Expr x, int axis, bool reversed) {
  const Expr out = reduce(Primitive::cumsum, x, axis);
  const_cast<Node&>(x.graph->node(out.id)).reversed = reversed;
  return out;
}
Expr mean(Expr x, int axis) {
  const int at = axis < 0 ? axis + x.shape().rank : axis;
  return sum(x, at) * named_constant(*x.graph, "1/" + std::to_string(x.shape()[at]));
}
Expr sum_all(Expr x) { return sum(reshape(x, Shape{x.shape().count()}), 0); }

namespace {

/// x with its batch axes, all but the last two, as in `like`: repeated where it has one, as NumPy broadcasts.
Expr with_batch(Expr x, const Shape& batch) {
  Shape shape = batch;
  shape.rank = batch.rank + 2;
  for (int i = 0; i < 2; ++i) shape[batch.rank + i] = x.shape().last(1 - i);
  if (shape == x.shape()) return x;
  const Shape from = row_major_strides(x.shape());
  Shape strides = shape;
  for (int i = 0; i < shape.rank; ++i) {
    const int own = i - (shape.rank - x.shape().rank);  // its axis there; none: repeated
    strides[i] = own < 0 || x.shape()[own] != shape[i] ? 0 : from[own];
  }
  return mapped(Primitive::take, x, map_of(strided_offsets(shape, strides)), shape);
}

Shape batch_of(const Shape& shape) {
  Shape out = shape;
  out.rank = shape.rank - 2;
  return out;
}

Expr matmul_of_one_batch(Expr a, Expr b, bool transpose_a, bool transpose_b) {
  const Shape &x = a.shape(), &y = b.shape();
  Node node;
  node.primitive = Primitive::matmul;
  node.shape = x;
  node.shape[x.rank - 2] = x.last(transpose_a ? 0 : 1);
  node.shape[x.rank - 1] = y.last(transpose_b ? 1 : 0);
  node.transpose_a = transpose_a;
  node.transpose_b = transpose_b;
  node.args = {a.id, b.id};
  return a.graph->record(std::move(node));
}

}  // namespace

Expr matmul(Expr a, Expr b, bool transpose_a, bool transpose_b) {
  const Shape &x = a.shape(), &y = b.shape();
  if (x.rank < 2 || y.rank < 2)
    throw Error("[formula] matmul, got " + x.str() + " and " + y.str() + ", want at least 2 dimensions each");
  const Shape left = batch_of(x), right = batch_of(y);
  bool fits = x.last(transpose_a ? 1 : 0) == y.last(transpose_b ? 0 : 1);
  for (int i = 0; fits && i < std::min(left.rank, right.rank); ++i)
    fits = left.last(i) == right.last(i) || left.last(i) == 1 || right.last(i) == 1;
  if (!fits) throw Error("[formula] matmul shapes do not fit, got " + x.str() + " and " + y.str());
  if (left == right) return matmul_of_one_batch(a, b, transpose_a, transpose_b);
  if (right.rank == 0 && !transpose_a) {  // one matrix for all rows of the batch: they are rows of one product
    const Shape rows{left.count() * x.last(1), x.last(0)};
    Shape out = x;
    out[x.rank - 1] = y.last(transpose_b ? 1 : 0);
    return reshape(matmul_of_one_batch(reshape(a, rows), b, false, transpose_b), out);
  }
  const Shape batch = broadcast_shape(left, right);
  return matmul_of_one_batch(with_batch(a, batch), with_batch(b, batch), transpose_a, transpose_b);
}

Expr reshape(Expr x, const Shape& shape) {
  if (shape == x.shape()) return x;
  if (shape.count() != x.shape().count())
    throw Error("[formula] reshape changes the count, got " + x.shape().str() + ", want " + shape.str());
  Expr out = identity(Primitive::reshape, x);
  const_cast<Node&>(x.graph->node(out.id)).shape = shape;
  return out;
}

Expr transpose(Expr x, std::span<const int> order) {
  const Shape from = row_major_strides(x.shape());
  Shape shape = x.shape(), strides = shape;
  for (int i = 0; i < shape.rank; ++i) {
    shape[i] = x.shape()[order[static_cast<std::size_t>(i)]];
    strides[i] = from[order[static_cast<std::size_t>(i)]];
  }
  return mapped(Primitive::take, x, map_of(strided_offsets(shape, strides)), shape);
}

Expr slice(Expr x, int axis, std::int64_t begin, std::int64_t end) {
  Shape shape = x.shape();
  const int at = axis < 0 ? axis + shape.rank : axis;
  const Shape strides = row_major_strides(shape);
  shape[at] = end - begin;
  return mapped(Primitive::take, x, map_of(strided_offsets(shape, strides, begin * strides[at])), shape);
}

Expr take(Expr x, std::vector<std::int64_t> map, const Shape& shape) {
  return take_by(x, map_of(std::move(map)), shape);
}
Expr take_by(Expr x, Map map, const Shape& shape) { return mapped(Primitive::take, x, std::move(map), shape); }

Expr put_add(Expr x, std::vector<std::int64_t> map, const Shape& shape) {
  return put_add_by(x, map_of(std::move(map)), shape);
}

namespace {

/// Which source each target has, -1 for none; null if some target has two, or there are no targets listed.
Map inverse(const std::vector<std::int64_t>& map, std::int64_t targets) {
  std::vector<std::int64_t> from(static_cast<std::size_t>(targets), -1);
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] < 0) continue;
    std::int64_t& source = from.at(static_cast<std::size_t>(map[i]));
    if (source >= 0) return nullptr;
    source = static_cast<std::int64_t>(i);
  }
  return map_of(std::move(from));
}

}  // namespace

Expr put_add_by(Expr x, Map map, const Shape& shape) {
  // A permutation or a placement adds nothing up: read from the other side it needs no state of a sum.
  if (Map back = inverse(*map, shape.count())) return mapped(Primitive::take, x, std::move(back), shape);
  return mapped(Primitive::put_add, x, std::move(map), shape);
}

Expr gather_rows(Expr table, const std::vector<std::int64_t>& index) {
  const std::int64_t width = table.shape()[1];
  std::vector<std::int64_t> map;
  map.reserve(index.size() * static_cast<std::size_t>(width));
  for (const std::int64_t row : index)
    for (std::int64_t d = 0; d < width; ++d) map.push_back(row < 0 ? -1 : row * width + d);
  return take(table, std::move(map), Shape{static_cast<std::int64_t>(index.size()), width});
}

namespace {

/// A part of a concatenation: what its elements are read from, through reshapes and other takes.
struct Part {
  Expr value;
  int source = -1;
  std::vector<std::int64_t> from;  ///< of each element, -1 for a zero

  explicit Part(Expr part) : value(part), source(part.id), from(static_cast<std::size_t>(part.shape().count())) {
    std::iota(from.begin(), from.end(), std::int64_t{0});
    for (const Node* node = &part.graph->node(source);
         node->primitive == Primitive::take || node->primitive == Primitive::reshape;
         node = &part.graph->node(source)) {
      if (node->map)
        for (std::int64_t& at : from)
          if (at >= 0) at = (*node->map)[static_cast<std::size_t>(at)];
      source = node->args.front();
    }
  }
};

/// More values than that are joined by halves: each is placed in a tensor of the whole size.
constexpr std::size_t kMostPlaced = 8;

}  // namespace

Expr concat(const std::vector<Expr>& parts, int axis) {
  const int at = axis < 0 ? axis + parts.front().shape().rank : axis;
  Shape shape = parts.front().shape();
  shape[at] = 0;
  std::vector<Part> read;
  std::map<int, std::size_t> uses;
  for (const Expr& part : parts) {
    shape[at] += part.shape()[at];
    ++uses[read.emplace_back(part).source];
  }
  if (uses.size() > kMostPlaced) {
    const auto half = parts.begin() + static_cast<std::ptrdiff_t>(parts.size() / 2);
    return concat({concat({parts.begin(), half}, at), concat({half, parts.end()}, at)}, at);
  }
  const Shape strides = row_major_strides(shape);
  // Windows of one image are one take of it, however many there are.
  std::vector<std::pair<Expr, std::vector<std::int64_t>>> placed;
  std::map<int, std::size_t> of_source;
  std::int64_t begin = 0;
  for (const Part& part : read) {
    const bool alone = uses.at(part.source) == 1;
    const auto [found, first] = of_source.try_emplace(part.source, placed.size());
    if (first)
      placed.emplace_back(alone ? part.value : parts.front().graph->at(part.source),
                          std::vector<std::int64_t>(static_cast<std::size_t>(shape.count()), -1));
    const std::vector<std::int64_t> to = strided_offsets(part.value.shape(), strides, begin * strides[at]);
    for (std::size_t i = 0; i < to.size(); ++i)
      placed[found->second].second[static_cast<std::size_t>(to[i])] =
          alone ? static_cast<std::int64_t>(i) : part.from[i];
    begin += part.value.shape()[at];
  }
  // A concatenation is a sum of parts with disjoint places: x + exact zero rounds nothing (rule R1).
  Expr out;
  for (auto& [source, map] : placed) {
    const Expr one = take(source, std::move(map), shape);
    out = out.defined() ? out + one : one;
  }
  return out;
}

std::int64_t window_extent(std::int64_t extent, int kernel, int stride, int padding) {
  return extent + 2 * padding < kernel ? 0 : (extent + 2 * padding - kernel) / stride + 1;
}

namespace {

/// Windows of an image: a column each, or a row each (`patches_first`).
Expr windows(Expr image, int kh, int kw, int stride, int padding, bool patches_first) {
  const Shape& s = image.shape();
  const std::int64_t oh = window_extent(s[2], kh, stride, padding), ow = window_extent(s[3], kw, stride, padding);
  const std::int64_t taps = s[1] * kh * kw, places = oh * ow;
  std::vector<std::int64_t> map(static_cast<std::size_t>(s[0] * taps * places));
  for (std::int64_t n = 0; n < s[0]; ++n)
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t place = 0; place < places; ++place) {
        const std::int64_t channel = tap / (kh * kw), r = tap / kw % kh, c = tap % kw;
        const std::int64_t y = place / ow * stride + r - padding, x = place % ow * stride + c - padding;
        const bool inside = y >= 0 && y < s[2] && x >= 0 && x < s[3];
        const std::int64_t at = n * taps * places + (patches_first ? place * taps + tap : tap * places + place);
        map[static_cast<std::size_t>(at)] = inside ? ((n * s[1] + channel) * s[2] + y) * s[3] + x : -1;
      }
  return take(image, std::move(map), patches_first ? Shape{s[0], places, taps} : Shape{s[0], taps, places});
}

}  // namespace

Expr unfold(Expr image, int kh, int kw, int stride, int padding) {
  return windows(image, kh, kw, stride, padding, false);
}
Expr patches(Expr image, int kh, int kw, int stride, int padding) {
  return windows(image, kh, kw, stride, padding, true);
}

Expr indicator(Graph& graph, const Shape& shape, std::vector<std::int64_t> values) {
  Node node;
  node.primitive = Primitive::indicator;
  node.shape = shape;
  node.map = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
  return graph.record(std::move(node));
}

Expr constant(Graph& graph, double value) {
  Node node;
  node.primitive = Primitive::constant;
  node.value = value;
  return graph.record(std::move(node));
}

Expr named_constant(Graph& graph, const std::string& name) {
  using namespace std::numbers;
  static const std::map<std::string, double> kKnown = {{"1/sqrt(2)", 0.5 * sqrt2},
                                                       {"2/sqrt(pi)", 2.0 * inv_sqrtpi},
                                                       {"sqrt(2/pi)", sqrt2 * inv_sqrtpi},
                                                       {"1/sqrt(2 pi)", 0.5 * sqrt2 * inv_sqrtpi},
                                                       {"log(2)", ln2},
                                                       {"1/log(2)", log2e},
                                                       {"pi", pi}};
  Node node;
  node.primitive = Primitive::constant;
  node.name = name;
  long long above = 0, below = 0;
  int used = 0;
  if (const auto known = kKnown.find(name); known != kKnown.end())
    node.value = known->second;
  else if (std::sscanf(name.c_str(), "%lld/%lld%n", &above, &below, &used) == 2 &&
           used == static_cast<int>(name.size()))
    node.value = static_cast<double>(above) / static_cast<double>(below);
  else
    throw Error("[formula] unknown constant, got '" + name +
                "', want a fraction or one of the names of named_constant()");
  return graph.record(std::move(node));
}

Expr stored(const std::string& name, Expr x) {
  Expr out = identity(Primitive::stored, x);
  const_cast<Node&>(x.graph->node(out.id)).name = name;
  return out;
}

Expr stop_gradient(Expr x) { return identity(Primitive::stop_gradient, x); }

Expr no_gradient(const std::string& convention, Expr x) {
  Expr out = identity(Primitive::no_gradient, x);
  const_cast<Node&>(x.graph->node(out.id)).name = convention;
  return out;
}

Expr own_adjoint(Expr value, const std::vector<Expr>& arguments, AdjointRule rule) {
  Node node;
  node.primitive = Primitive::own_adjoint;
  node.shape = value.shape();
  node.args = {value.id};
  for (const Expr& argument : arguments) node.args.push_back(argument.id);
  node.adjoint = std::move(rule);
  return value.graph->record(std::move(node));
}

Expr sum_to(Expr g, const Shape& shape) {
  while (g.shape().rank > shape.rank) {
    const Expr summed = sum(g, 0);
    const Shape& s = summed.shape();
    g = reshape(summed, Shape(std::span<const std::int64_t>(s.extent + 1, static_cast<std::size_t>(s.rank - 1))));
  }
  for (int axis = 0; axis < shape.rank; ++axis)
    if (shape[axis] == 1 && g.shape()[axis] != 1) g = sum(g, axis);
  return g;
}

}  // namespace ampcheck::reference
