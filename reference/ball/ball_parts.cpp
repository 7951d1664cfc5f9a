// SPDX-License-Identifier: Apache-2.0
#include "reference/ball/ball_parts.h"

#include <algorithm>

namespace ampcheck::reference {

namespace {

Channel at(const Channel& channel, std::int64_t first) {
  return channel ? Channel(channel, channel.get() + first) : nullptr;
}

UniformRadius widest(const UniformRadius& a, const UniformRadius& b) {
  return {std::max(a.relative, b.relative), std::max(a.absolute, b.absolute), a.chained || b.chained,
          std::max(a.terms, b.terms),       std::max(a.mass, b.mass),         std::max(a.base, b.base)};
}

/// A ball of other elements: `copy` takes them from each of the channels that there are.
template <class Copy>
Ball gathered(const Ball& ball, const Shape& shape, Copy copy) {
  Ball out = part_of(ball, shape, 0);
  for (Channel* const channel : {&out.v, &out.r, &out.terms, &out.mass, &out.base, &out.grid}) {
    if (!*channel) continue;
    Channel to = make_channel(shape.count());
    copy(channel->get(), to.get());
    *channel = std::move(to);
  }
  return out;
}

}  // namespace

Ball part_of(const Ball& ball, const Shape& shape, std::int64_t first) {
  Ball part;
  part.shape = shape;
  part.v = at(ball.v, first);
  part.r = at(ball.r, first);
  part.terms = at(ball.terms, first);
  part.mass = at(ball.mass, first);
  part.base = at(ball.base, first);
  part.grid = at(ball.grid, first);
  part.all = ball.all;
  part.range = ball.range;
  part.narrow = ball.narrow;
  part.chain_up = ball.chain_up;
  part.chain_down = ball.chain_down;
  return part;
}

void put(const Ball& part, const Shape& shape, std::int64_t first, Ball& whole) {
  whole.shape = shape;
  const auto copy = [&](const Channel& from, Channel& to) {
    if (!from) return;
    if (!to) to = make_channel(shape.count());
    std::copy_n(from.get(), part.count(), to.get() + first);
  };
  copy(part.v, whole.v);
  copy(part.r, whole.r);
  copy(part.terms, whole.terms);
  copy(part.mass, whole.mass);
  copy(part.base, whole.base);
  copy(part.grid, whole.grid);
  const bool start = first == 0;
  whole.narrow = part.narrow;
  whole.range.largest = start ? part.range.largest : std::max(whole.range.largest, part.range.largest);
  whole.range.smallest = start ? part.range.smallest : std::min(whole.range.smallest, part.range.smallest);
  whole.range.zero = (!start && whole.range.zero) || part.range.zero;
  whole.all = start ? part.all : widest(whole.all, part.all);
  whole.chain_up = start ? part.chain_up : std::max(whole.chain_up, part.chain_up);
  whole.chain_down = start ? part.chain_down : std::min(whole.chain_down, part.chain_down);
}

Ball rows_of(const Ball& ball, const Shape& shape, std::int64_t width, std::span<const std::int64_t> rows) {
  return gathered(ball, shape, [&](const double* from, double* to) {
    for (std::size_t k = 0; k < rows.size(); ++k)
      std::copy_n(from + rows[k] * width, width, to + static_cast<std::ptrdiff_t>(k) * width);
  });
}

PickedElements elements_of_rows(const RowElements& all, std::span<const std::int64_t> rows) {
  PickedElements out;
  out.rows = std::ssize(rows);
  for (const std::int64_t row : rows) out.most = std::max(out.most, std::ssize(all.at(row)));
  for (const std::int64_t row : rows) {
    const std::vector<std::int64_t>& of_row = all.at(row);
    for (std::int64_t i = 0; i < out.most; ++i)
      out.at.push_back(of_row[static_cast<std::size_t>(std::min(i, std::ssize(of_row) - 1))]);
  }
  return out;
}

Ball elements_of(const Ball& ball, std::int64_t width, const PickedElements& picked) {
  const std::int64_t step = ball.count() == width ? 0 : width;
  return gathered(ball, Shape{picked.rows, picked.most}, [&](const double* from, double* to) {
    for (std::int64_t row = 0, i = 0; row < picked.rows; ++row)
      for (std::int64_t k = 0; k < picked.most; ++k, ++i)
        to[i] = from[row * step + picked.at[static_cast<std::size_t>(i)]];
  });
}

}  // namespace ampcheck::reference
