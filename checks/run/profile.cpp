// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/profile.h"

#include <algorithm>
#include <cmath>

#include "checks/case/interval.h"
#include "src/digest.h"
#include "src/file_bytes.h"
#include "src/index.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kWorst = 4;

bool is_result(const std::string& name) {
  for (const char* end : {".got", ".want", ".low", ".high"})
    if (name.ends_with(end)) return true;
  return false;
}

const Dump::Entry* entry(const Dump& dump, const std::string& name) {
  for (const Dump::Entry& e : dump.entries)
    if (e.name == name) return &e;
  return nullptr;
}

/// Codes of the tensor's type, eight bytes each: the same on every machine.
std::string codes_of(const Dump::Entry& e) {
  const FloatFormat* const to = is_float(e.dtype) ? &format(e.dtype) : nullptr;
  std::string out;
  out.reserve(8 * e.values.size());
  for (const double value : e.values) {
    if (to == nullptr)
      put(out, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
    else
      put(out, encode_scalar(*to, std::isnan(value) ? std::fabs(value) : value));
  }
  return out;
}

/// The error of each element, in ulps; NaN for one that does not count.
std::vector<double> errors_of(const Dump::Entry& got, const Dump::Entry& want, const Dump::Entry& low,
                              const Dump::Entry& high, TensorProfile& out) {
  const FloatFormat& to = format(got.dtype);
  std::vector<double> errors(got.values.size(), std::nan(""));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double right = decode_scalar(to, encode_scalar(to, want.values[i]));
    const bool open = std::isinf(low.values[i]) && std::isinf(high.values[i]) && low.values[i] < high.values[i];
    if (open || (!std::isfinite(right) && !std::isfinite(got.values[i])))
      ++out.open;
    else if (!std::isfinite(right) || !std::isfinite(got.values[i]))
      ++out.not_finite;
    else
      errors[i] = (got.values[i] - right) / spacing_at(to, right);
  }
  return errors;
}

void add_worst(const std::vector<double>& errors, const Dump::Entry& got, const Dump::Entry& want, TensorProfile& out) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (std::fabs(errors[i]) > 0) order.push_back(i);  // and no NaN
  const std::size_t few = std::min(kWorst, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(few), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      const double x = std::fabs(errors[a]), y = std::fabs(errors[b]);
                      return x != y ? x > y : a < b;
                    });
  const FloatFormat& to = format(got.dtype);
  for (std::size_t k = 0; k < few; ++k)
    out.worst.push_back({index_text(got.shape, static_cast<std::int64_t>(order[k])),
                         encode_scalar(to, got.values[order[k]]), encode_scalar(to, want.values[order[k]]),
                         errors[order[k]]});
}

/// The size below which that share of the errors lies: one of them, by nearest rank.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

void add_statistics(const std::vector<double>& errors, TensorProfile& out) {
  std::vector<double> sizes;
  double sum = 0, squares = 0;
  for (const double error : errors) {
    if (std::isnan(error)) continue;
    sizes.push_back(std::fabs(error));
    sum += error;
    squares += error * error;
    if (error != 0) ++out.histogram[std::ilogb(error)];
  }
  if (sizes.empty()) return;
  std::sort(sizes.begin(), sizes.end());
  out.max = sizes.back();
  out.p9999 = quantile(sizes, 0.9999);
  out.p99 = quantile(sizes, 0.99);
  out.rms = std::sqrt(squares / static_cast<double>(sizes.size()));
  out.bias = sum / static_cast<double>(sizes.size());
}

}  // namespace

CaseProfile profile_of(const Dump& dump) {
  CaseProfile out;
  std::string inputs;
  for (const Dump::Entry& e : dump.entries) {
    if (!is_result(e.name)) inputs += e.name + '\n' + e.shape.str() + '\n' + name(e.dtype) + '\n' + codes_of(e);
    if (!e.name.ends_with(".got")) continue;
    const std::string tensor = e.name.substr(0, e.name.size() - 4);
    const Dump::Entry *want = entry(dump, tensor + ".want"), *low = entry(dump, tensor + ".low"),
                      *high = entry(dump, tensor + ".high");
    TensorProfile& profile = out.tensors[tensor];
    profile.elements = static_cast<std::int64_t>(e.values.size());
    profile.bits = digest_of(codes_of(e)).str();
    if (want == nullptr || low == nullptr || high == nullptr || !is_float(e.dtype)) continue;
    const std::vector<double> errors = errors_of(e, *want, *low, *high, profile);
    add_statistics(errors, profile);
    add_worst(errors, e, *want, profile);
  }
  out.inputs = digest_of(inputs).str();
  return out;
}

}  // namespace ampcheck::checks
