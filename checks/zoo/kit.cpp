// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/kit.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>

#include "kernels/storage.h"
#include "src/rounding.h"

namespace ampcheck::checks::zoo {

float rounded(Dtype dtype, float x) {
  if (std::isfinite(x)) {  // as kernels round, without the bulk conversion's cost a number
    if (dtype == Dtype::bf16) return kernels::to_float(kernels::from_float<kernels::Bf16>(x));
    if (dtype == Dtype::fp16) return kernels::to_float(kernels::from_float<kernels::Fp16>(x));
  }
  double v = static_cast<double>(x);
  if (dtype != Dtype::fp32) round_values(format(dtype), RoundingMode{}, {&v, 1}, {&v, 1});
  return static_cast<float>(v);
}

float tf32(float x) {
  if (!std::isfinite(x)) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

// ---- Sums. ----

namespace {

/// Which launch of its kernel this is, for what differs between repeats.
thread_local unsigned launch_turn = 0;

float toward_zero(double exact) {
  const auto near = static_cast<float>(exact);
  return std::isfinite(near) && std::fabs(static_cast<double>(near)) > std::fabs(exact) ? std::nextafter(near, 0.0f)
                                                                                        : near;
}

/// Sum in which every addition ends in `round`.
template <class F>
float chain(std::span<const Term> terms, F round) {
  float s = 0;
  for (const Term& t : terms) s = round(s + t.product());
  return s;
}

template <class F>
float by_blocks(std::span<const Term> terms, std::size_t size, F add) {
  float s = 0;
  for (std::size_t i = 0; i < terms.size(); i += size)
    s = add(s, in_order(terms.subspan(i, std::min(size, terms.size() - i))));
  return s;
}

}  // namespace

float in_order(std::span<const Term> terms) {
  return chain(terms, [](float s) { return s; });
}
float backwards(std::span<const Term> terms) {
  float s = 0;
  for (std::size_t i = terms.size(); i-- > 0;) s += terms[i].product();
  return s;
}
float pairwise(std::span<const Term> terms) {
  if (terms.size() <= 2) return in_order(terms);
  return pairwise(terms.first(terms.size() / 2)) + pairwise(terms.subspan(terms.size() / 2));
}
float in_blocks(std::span<const Term> terms) {
  return by_blocks(terms, 32, [](float s, float block) { return s + block; });
}
float in_lanes(std::span<const Term> terms) {
  float lane[32] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) lane[i % 32] += terms[i].product();
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}
float in_vectors(std::span<const Term> terms) {
  float lane[8] = {};
  const std::size_t whole = terms.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; ++i) lane[i % 8] += terms[i].product();
  float s = 0;
  for (const float part : lane) s += part;
  return s + in_order(terms.subspan(whole));
}
float split_in_four(std::span<const Term> terms) {
  return by_blocks(terms, std::max<std::size_t>(1, (terms.size() + 3) / 4),
                   [](float s, float part) { return s + part; });
}
float compensated(std::span<const Term> terms) {
  float s = 0, carry = 0;
  for (const Term& t : terms) {
    const float y = t.product() - carry, next = s + y;
    carry = (next - s) - y;
    s = next;
  }
  return s;
}
float fused(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) s = std::fma(t.a, t.b, s);
  return s;
}
float in_double(std::span<const Term> terms) {
  double s = 0;
  for (const Term& t : terms) s += static_cast<double>(t.a) * static_cast<double>(t.b);
  return static_cast<float>(s);
}

float without_last(std::span<const Term> terms) { return in_order(terms.first(terms.empty() ? 0 : terms.size() - 1)); }
float without_first(std::span<const Term> terms) { return in_order(terms.subspan(terms.empty() ? 0 : 1)); }
float without_tail_of_8(std::span<const Term> terms) { return in_order(terms.first(terms.size() / 8 * 8)); }
float without_tail_of_32(std::span<const Term> terms) { return in_order(terms.first(terms.size() / 32 * 32)); }
float last_block_alone(std::span<const Term> terms) {
  return by_blocks(terms, 32, [](float, float block) { return block; });
}
float last_twice(std::span<const Term> terms) {
  return in_order(terms) + (terms.empty() ? 0.0f : terms.back().product());
}
float twice_in_overlap(std::span<const Term> terms) {
  float s = in_order(terms);
  for (std::size_t i = 31; i + 1 < terms.size(); i += 32) s += terms[i].product();
  return s;
}
float in_bf16(std::span<const Term> terms) { return chain(terms, bf16); }
float in_fp16(std::span<const Term> terms) { return chain(terms, fp16); }
float split_in_bf16(std::span<const Term> terms) {
  return by_blocks(terms, std::max<std::size_t>(1, (terms.size() + 3) / 4),
                   [](float s, float part) { return s + bf16(part); });
}
float blocks_in_storage_bf16(std::span<const Term> terms) {
  return by_blocks(terms, 32, [](float s, float block) { return bf16(s + block); });
}
float truncating(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) s = toward_zero(static_cast<double>(s) + static_cast<double>(t.product()));
  return s;
}
float of_tf32(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) s += tf32(t.a) * tf32(t.b);
  return s;
}
float of_bf16(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) s += bf16(t.a) * bf16(t.b);
  return s;
}
float racing(std::span<const Term> terms) {
  const std::size_t lost = launch_turn % 3 == 0 ? terms.size() / 2 : terms.size();
  float s = 0;
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (i != lost) s += terms[i].product();
  return s;
}
float unordered(std::span<const Term> terms) {
  const std::size_t start = terms.empty() ? 0 : launch_turn * 7 % terms.size();
  float s = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) s += terms[(start + i) % terms.size()].product();
  return s;
}

float largest(std::span<const float> values) {
  float m = -INFINITY;
  for (const float v : values) m = v > m || v != v ? v : m;
  return m;
}

// ---- Slips. ----

namespace {

Values to_floats(const TensorView& view) {
  const std::vector<double> values = to_doubles(view);
  return Values(values.begin(), values.end());
}

/// Elements that a slip leaves unwritten: every one from `first` on in row-major order, or those of one column.
bool left_out(Io what, std::int64_t i, const Shape& shape) {
  const std::int64_t all = shape.count(), columns = shape.rank == 0 ? 1 : shape.last(),
                     rows = columns == 0 ? 0 : all / columns;
  switch (what) {
    case Io::drop_last: return i == all - 1;
    case Io::drop_last_row: return i / columns == rows - 1;
    case Io::drop_tail_of_4: return i >= all / 4 * 4;
    case Io::drop_tail_of_8_rows: return i / columns >= rows / 8 * 8;
    case Io::drop_beyond_16_bits: return i > 0xffff;
    case Io::drop_odd_column: return columns % 2 == 1 && i % columns == columns - 1;
    default: return false;
  }
}

double stored(Io what, double x, Dtype dtype, double factor) {
  const FloatFormat& type = format(dtype);
  const auto round = [&](const FloatFormat& to, RoundingMode mode = {}) {
    double v = x;
    round_values(to, mode, {&v, 1}, {&v, 1});
    return v;
  };
  switch (what) {
    case Io::truncate: return round(type, {.rounding = Rounding::toward_zero});
    case Io::flush: return round(type, {.subnormals = Subnormals::flush});
    case Io::saturate: return round(type, {.overflow = Overflow::saturate});
    case Io::nan_to_zero: return std::isnan(x) ? 0.0 : x;
    case Io::through_bf16: return round(format(Dtype::bf16));
    case Io::through_fp16: return round(format(Dtype::fp16));
    case Io::zero: return 0.0;
    case Io::negate: return -x;
    case Io::scale: return static_cast<double>(static_cast<float>(x) * static_cast<float>(factor));
    default: return x;
  }
}

/// One element more than the tensor has, as a launch rounded up writes.
void write_behind(const TensorView& view) {
  if (view.count() == 0) return;
  const std::int64_t size = bytes(view.dtype);
  std::memset(view.as<std::byte>() + (view.offset(view.count() - 1) + 1) * size, 0x3c, static_cast<std::size_t>(size));
}

}  // namespace

Values Call::in(const std::string& name) const {
  TensorView view = call_.at(name);
  if (slip_.tensor != name) return to_floats(view);
  if (slip_.what == Io::read_dense) view.strides = row_major_strides(view.shape);
  if (slip_.what == Io::read_with_strides) view.strides = call_.at(slip_.other).strides;
  Values values = to_floats(view);
  const std::int64_t columns = view.shape.rank == 0 ? 1 : view.shape.last();
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& v = values[i];
    switch (slip_.what) {
      case Io::absolute: v = std::fabs(v); break;
      case Io::squared: v = v * v; break;
      case Io::positive: v = v > 0 ? v : 0; break;
      case Io::ones: v = 1; break;
      case Io::first_for_all: v = values[0]; break;
      case Io::first_row_for_all: v = values[i % index_of(columns)]; break;
      case Io::read_in_bf16: v = bf16(v); break;
      default: break;
    }
  }
  return values;
}

std::vector<std::int64_t> Call::whole(const std::string& name) const {
  std::vector<std::int64_t> out;
  for (const double v : to_doubles(call_.at(name))) out.push_back(static_cast<std::int64_t>(v));
  return out;
}

void Call::out(const std::string& name, const Values& values) const {
  const TensorView* found = call_.find(name);
  if (found == nullptr) return;
  const bool slips = slip_.tensor == name;
  const Io what = slips ? slip_.what : Io::none;
  TensorView view = *found;
  if (what == Io::write_dense) view.strides = row_major_strides(view.shape);
  std::vector<double> doubles(values.begin(), values.end());
  if (!slips) return from_doubles(doubles, view);
  const std::int64_t columns = view.shape.rank == 0 ? 1 : view.shape.last();
  const std::vector<double> before = to_doubles(view);
  for (std::size_t i = 0; i < doubles.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (left_out(what, at, view.shape))
      doubles[i] = before[i];
    else if (what == Io::add_to_buffer)
      doubles[i] += before[i];
    else if (what == Io::alternate && launch_turn % 2 == 0 && i == doubles.size() / 2)
      doubles[i] = static_cast<double>(std::nextafter(values[i], HUGE_VALF));
    else if (what == Io::wrap_16_bits && at > 0xffff) {
      doubles[i] = before[i];
      doubles[i & 0xffffu] = static_cast<double>(values[i]);
    } else if (what == Io::last_row_from_first && columns > 0 && at / columns == view.count() / columns - 1)
      doubles[i] = static_cast<double>(values[i % index_of(columns)]);
    else
      doubles[i] = stored(what, doubles[i], view.dtype, slip_.factor);
  }
  from_doubles(doubles, view);
  if (what == Io::overrun) write_behind(view);
}

void Call::finish() const {
  const TensorView* view = call_.find(slip_.tensor);
  if (view == nullptr) return;
  if (slip_.what == Io::throw_on_empty && view->count() == 0) throw Error("[kernel] invalid configuration argument");
  if (slip_.what != Io::clobber || view->count() == 0) return;
  std::memset(view->data, 0x3c, static_cast<std::size_t>(bytes(view->dtype)));
}

Kernel kernel_of(Body forward, Body backward, Slip slip) {
  const auto turns = std::make_shared<std::atomic<unsigned>>(0);
  const auto runs = [slip, turns](Body body) {
    return [slip, turns, body = std::move(body)](const KernelCall& launch) {
      launch_turn = ++*turns;
      const Call call(launch, slip);
      body(call);
      call.finish();
    };
  };
  return {runs(std::move(forward)), runs(std::move(backward))};
}

Kernel unary(float (*f)(float, Dtype), float (*df)(float, float, Dtype), Slip slip) {
  const auto forward = [f](const Call& call) {
    Values y = call.in("x");
    for (float& v : y) v = f(v, call.dtype("x"));
    call.out("y", y);
  };
  const auto backward = [df](const Call& call) {
    const Values x = call.in("x");
    Values dx = call.in("dy");
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = df(x[i], dx[i], call.dtype("x"));
    call.out("dx", dx);
  };
  return kernel_of(forward, backward, std::move(slip));
}

AxisLines::AxisLines(const Call& call, bool confused) {
  const std::int64_t n = call.shape("x")[0], d = call.shape("x")[1];
  const bool first = (call.integer("axis") == 0) != (confused && n == d);
  count = first ? d : n;
  length = first ? n : d;
  line_stride = first ? 1 : d;
  step = first ? d : 1;
}

Values AxisLines::line(const Values& x, std::int64_t r) const {
  Values out;
  for (std::int64_t i = 0; i < length; ++i) out.push_back(x[at(r, i)]);
  return out;
}

Kernel elementwise(float (*f)(float x, float a), float (*df)(float x, float g, float a), const char* attribute) {
  const auto number = [attribute](const Call& call) { return attribute == nullptr ? 0.0f : call.number(attribute); };
  return kernel_of(
      [=](const Call& call) {
        Values y = call.in("x");
        for (float& v : y) v = f(v, number(call));
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x");
        Values dx = call.in("dy");
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = df(x[i], dx[i], number(call));
        call.out("dx", dx);
      });
}

Kernel binary(float (*f)(float, float, Dtype), BinaryGradient da, BinaryGradient db, Slip slip, BinaryNames names) {
  const auto forward = [=](const Call& call) {
    const Values a = call.in(names.a), b = call.in(names.b);
    Values out(a.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f(a[i], b[i], call.dtype(names.a));
    call.out(names.out, out);
  };
  const auto backward = [=](const Call& call) {
    const Values a = call.in(names.a), b = call.in(names.b), g = call.in(gradient_name(names.out));
    Values out(a.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = da(a[i], b[i], g[i], call.dtype(names.a));
    call.out(gradient_name(names.a), out);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = db(a[i], b[i], g[i], call.dtype(names.a));
    call.out(gradient_name(names.b), out);
  };
  return kernel_of(forward, backward, std::move(slip));
}

}  // namespace ampcheck::checks::zoo
