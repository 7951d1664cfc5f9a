// SPDX-License-Identifier: Apache-2.0
// Shades of matrices: a product's shade is the sum of its terms' shades, and its own error what the tensor core makes
// of the terms that it has.
#include <algorithm>
#include <cmath>

#include "src/ptx/shades.h"

namespace ampcheck::ptx {

void Shades::hold_product(const WarpState& w, const Instruction& in) {
  product_ = in.number_of_it.op == NumberOp::product ? mma_places(program_, in) : wmma_places(program_, in);
  const auto take = [&](const std::vector<MatrixPlace>& places, NumberFormat format, std::vector<Operand>& to) {
    to.clear();
    for (const MatrixPlace& p : places) to.push_back(read(w, p.slot, format, p.part, p.lane));
  };
  if (product_.m == 0) return;
  take(product_.a, product_.factor, factors_[0]);
  take(product_.b, product_.factor, factors_[1]);
  take(product_.c, product_.sum, sums_);
}

/// An element of a b + c without rounding. Who took most digits is whom the term with the largest error remembers.
Shades::Operand Shades::dot(std::size_t row, std::size_t column) const {
  const auto n = static_cast<std::size_t>(product_.n), k = static_cast<std::size_t>(product_.k);
  Operand out = sums_[row * n + column];
  double most = std::fabs(out.real - out.shade.value);
  for (std::size_t i = 0; i < k; ++i) {
    const Operand &x = factors_[0][row * k + i], &y = factors_[1][i * n + column];
    const double real = x.real * y.real, shade = x.shade.value * y.shade.value, error = std::fabs(real - shade);
    out.real += real;
    out.shade.value += shade;
    if (!(error > most)) continue;
    most = error;
    const Shade& from = x.shade.lost >= y.shade.lost ? x.shade : y.shade;
    out.shade.origin = from.origin;
    out.shade.lost = from.lost;
    out.shade.why = from.why;
  }
  return out;
}

void Shades::multiply(const WarpState& w, const Instruction& in) {
  if (product_.m == 0) return;
  Instruction rounding = in;  // of the whole sum, from one number
  rounding.number_of_it = {.op = NumberOp::convert, .result = product_.sum, .operand = product_.sum};
  for (std::size_t i = 0; i < product_.d.size(); ++i) {
    const MatrixPlace& place = product_.d[i];
    const Operand from[3] = {
        dot(i / static_cast<std::size_t>(product_.n), i % static_cast<std::size_t>(product_.n)), {}, {}};
    const Operand result = read(w, place.slot, product_.sum, place.part, place.lane);
    Shade shade = settle(rounding, result.real, from, 1);
    shade.bits = result.shade.bits;
    shade.format = product_.sum;
    Lanes& lanes = made(w, place.slot);
    lanes.part[place.part][place.lane] = shade;
    if (product_.sum == NumberFormat::single) lanes.part[1][place.lane] = {};
  }
}

void Shades::hold_fragment(const WarpState& w, const Instruction& in) {
  fragment_ = fragment_places(w, in, fragment_bytes_);
}

void Shades::move_fragment(const WarpState& w, const Instruction& in) {
  if (fragment_bytes_ < 2) return;
  storing_ = in.place;
  const bool loads = in.number_of_it.op == NumberOp::wmma_load;
  for (const FragmentPlace& place : fragment_) {
    if (loads) {
      const Shade* const there = cell(key(w, place.address, place.lane), false);
      if (there == nullptr && known(w, place.slot) == nullptr) continue;
      Lanes& lanes = made(w, place.slot);
      lanes.part[place.part][place.lane] = there == nullptr ? Shade{} : *there;
      if (fragment_bytes_ == 4) lanes.part[1][place.lane] = {};
    } else {
      const Lanes* const lanes = known(w, place.slot);
      put(lanes == nullptr ? Shade{} : lanes->part[place.part][place.lane], key(w, place.address, place.lane),
          place.address, fragment_bytes_);
    }
  }
}

}  // namespace ampcheck::ptx
