// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/elsewhere.h"

#include <algorithm>
#include <cmath>

#include "checks/case/case_run.h"
#include "checks/explain/median.h"

namespace ampcheck::checks {

const WrongTensor* RightRows::get() {
  if (!asked_) part_ = right_rows(whole_);
  if (!asked_ && part_) rows_.emplace(part_->wrong(whole_.pass));
  asked_ = true;
  return rows_ ? &*rows_ : nullptr;
}

bool refuted_by_passing(const WrongTensor& wrong, std::span<const std::vector<double>> replays) {
  // Of errors as large as those of a replay nine in ten exceed an eighth of it, and of errors a quarter as large six in
  // ten. A right element is off by half a unit of storage, which is less than that eighth.
  constexpr double kVisible = 8, kShare = 1.0 / 4;
  constexpr std::int64_t kFewest = 16;  // each is off by less than an eighth in four cases of ten at most: 10^-6
  const FloatFormat& storage = format(wrong.interval.dtype);
  std::vector<char> outside(wrong.got.size(), 0);
  for (const std::int64_t i : wrong.comparison.outside) outside[static_cast<std::size_t>(i)] = 1;
  std::int64_t visible = 0, off = 0;
  for (std::size_t i = 0; i < wrong.got.size(); ++i) {
    if (outside[i] != 0 || unjudged(wrong.interval, i)) continue;
    const double value = wrong.interval.value[i], error = std::fabs(wrong.got[i] - value);
    double square = 0;
    for (const std::vector<double>& replay : replays)
      square += std::pow(replay[i] - value, 2) / static_cast<double>(replays.size());
    const double size = std::sqrt(square);
    if (!std::isfinite(size) || !(size >= kVisible * spacing_at(storage, value) / 2)) continue;
    ++visible;
    off += !(error < size / kVisible);
  }
  return visible >= kFewest && static_cast<double>(off) < kShare * static_cast<double>(visible);
}

namespace {

/// What makes rows alike: the largest number of each input in them, and how wide the bounds are.
struct Rows {
  std::int64_t count = 0, width = 0;
  std::vector<std::vector<double>> largest;  ///< of each input and cotangent that has as many rows
  std::vector<double> radius;                ///< median of the relative ones

  explicit Rows(const WrongTensor& wrong) {
    const Shape& shape = wrong.interval.shape;
    if (shape.rank == 0 || shape[0] < 2) return;
    count = shape[0];
    width = shape.count() / count;
    for (std::int64_t r = 0; r < count && width > 0; ++r) {
      std::vector<double> shares;
      for (std::int64_t at = r * width; at < (r + 1) * width; ++at) {
        const auto i = static_cast<std::size_t>(at);
        const double share = wrong.interval.radius[i] / std::fabs(wrong.interval.value[i]);
        if (std::isfinite(share)) shares.push_back(share);
      }
      radius.push_back(median(std::move(shares)));
    }
    const CaseRun& run = wrong.run;
    for (const TensorSpec& spec : run.op.signature.inputs)
      if (run.call.has(spec) && is_float(run.call.dtype(spec)) && run.call.shape(spec).rank > 0 &&
          run.call.shape(spec)[0] == count)
        add(wrong.run.reference.inputs().at(spec.name));
    if (wrong.pass == Pass::forward) return;
    for (const auto& [name, values] : wrong.run.reference.cotangents())
      if (std::ssize(values) % count == 0) add(values);
  }
  /// Whether what goes wrong in row a because of the size of its numbers would go wrong in b.
  bool alike(std::size_t a, std::size_t b) const {
    return radius[b] <= 4 * radius[a] && radius[a] <= 4 * radius[b] &&
           std::ranges::all_of(largest, [&](const std::vector<double>& of) { return of[b] >= of[a] / 2; });
  }

 private:
  template <class Values>
  void add(const Values& values) {
    const std::size_t each = values.size() / static_cast<std::size_t>(count);
    std::vector<double> out(static_cast<std::size_t>(count), 0);
    for (std::size_t i = 0; i < values.size() && each > 0; ++i)
      out[i / each] = std::fmax(out[i / each], std::fabs(values[i]));
    largest.push_back(std::move(out));
  }
};

}  // namespace

bool confined_to_rows(const WrongTensor& wrong) {
  constexpr double kBits = 20;  // as 10^6 : 1
  const Rows rows(wrong);
  if (rows.width == 0) return false;
  std::vector<std::int64_t> outside(static_cast<std::size_t>(rows.count), 0);
  for (const std::int64_t i : wrong.comparison.outside) ++outside[static_cast<std::size_t>(i / rows.width)];
  std::int64_t bad = 0, right = 0;
  for (const std::int64_t n : outside) bad += n > 0;
  for (std::size_t b = 0; b < outside.size(); ++b) {
    if (outside[b] > 0) continue;
    bool alike = true;
    for (std::size_t a = 0; a < outside.size() && alike; ++a) alike = outside[a] == 0 || rows.alike(a, b);
    right += alike;
  }
  // That all of n wrong elements fall on the bad ones of these rows, by chance; of rows that are chosen afterwards.
  const double all = static_cast<double>(bad + right);
  return bad > 0 && right > 0 &&
         static_cast<double>(std::ssize(wrong.comparison.outside)) * std::log2(all / static_cast<double>(bad)) -
                 static_cast<double>(bad) * std::log2(all) >=
             kBits;
}

}  // namespace ampcheck::checks
