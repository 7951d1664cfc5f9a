// SPDX-License-Identifier: Apache-2.0
// Speed of the format conversions, one thread. "vs_memcpy": elements per second relative to a memcpy of the source,
// both as the best of alternating repetitions in the same run, so that a busy machine slows both.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "src/rounding.h"
#include "tests/bench/figures.h"

namespace {

using ampcheck::FloatFormat;
using ampcheck::Overflow;
using ampcheck::Rounding;
using ampcheck::RoundingMode;

/// Values from the format's own range, one in sixteen around it, so that normal, subnormal and overflow lanes are
/// mixed.
template <class T>
std::vector<T> make_input(std::size_t n) {
  std::vector<T> values(n);
  std::uint64_t state = 1;
  for (T& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto mantissa = static_cast<double>(static_cast<std::int64_t>(state) >> 20) * 0x1p-43;
    value = static_cast<T>(mantissa * ((state & 15) == 0 ? 0x1p-12 : 1.0));
  }
  return values;
}

template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs convert() under the benchmark loop, with a memcpy of the source after each repetition.
template <class T, class Convert>
void compare_with_memcpy(benchmark::State& state, const std::vector<T>& in, const Convert& convert) {
  static std::vector<T> copy;  // kept between benchmarks: fresh pages would cost more than the copy
  if (copy.size() < in.size()) copy.resize(in.size());
  // Small arrays are repeated until a measurement is long against the clock.
  const std::size_t repeat = std::max<std::size_t>(1, 4'000'000 / in.size());
  double best_convert = 1e9;
  double best_copy = 1e9;
  for (auto _ : state) {
    const double t = seconds([&] {
      for (std::size_t i = 0; i < repeat; ++i) {
        convert();
        benchmark::ClobberMemory();
      }
    });
    state.SetIterationTime(t);
    best_convert = std::min(best_convert, t);
    best_copy = std::min(best_copy, seconds([&] {
                           for (std::size_t i = 0; i < repeat; ++i) {
                             std::memcpy(copy.data(), in.data(), in.size() * sizeof(T));
                             benchmark::ClobberMemory();
                           }
                         }));
  }
  const double per_element = best_convert / static_cast<double>(repeat * in.size());
  state.counters["vs_memcpy"] = best_copy / best_convert;
  state.counters["ns_per_element"] = per_element * 1e9;
}

template <class T>
const std::vector<T>& shared_input(std::size_t n) {
  static std::vector<T> values;
  if (values.size() != n) values = make_input<T>(n);
  return values;
}

std::vector<std::byte>& shared_output(std::size_t bytes) {
  static std::vector<std::byte> storage;
  if (storage.size() < bytes + 64) storage.resize(bytes + 64);
  return storage;
}

std::byte* aligned(std::vector<std::byte>& storage) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64;
}

/// The figures: nearest and toward zero into the four main formats; the slowest of the eight stands for a target and
/// size.
void record_worst(std::string_view target, const FloatFormat& format, RoundingMode mode, std::size_t n,
                  double vs_memcpy);

template <class T>
void BM_Encode(benchmark::State& state, std::string_view target, FloatFormat format, RoundingMode mode) {
  ampcheck::set_simd_target(target);
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::vector<T>& in = shared_input<T>(n);
  std::byte* out = aligned(shared_output(n * static_cast<std::size_t>(format.storage_bytes())));
  compare_with_memcpy(state, in, [&] { ampcheck::encode(format, mode, std::span<const T>(in), out); });
  if (sizeof(T) == sizeof(float)) record_worst(target, format, mode, n, state.counters["vs_memcpy"]);
  ampcheck::set_simd_target("");
}

void BM_RoundValues(benchmark::State& state, std::string_view target, FloatFormat format, RoundingMode mode) {
  ampcheck::set_simd_target(target);
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::vector<double>& in = shared_input<double>(n);
  std::vector<double> out(n);
  compare_with_memcpy(state, in, [&] { ampcheck::round_values(format, mode, in, out); });
  ampcheck::set_simd_target("");
}

void BM_Decode(benchmark::State& state, std::string_view target, FloatFormat format, RoundingMode) {
  ampcheck::set_simd_target(target);
  const auto n = static_cast<std::size_t>(state.range(0));
  std::vector<float> values(n);
  std::byte* codes = aligned(shared_output(n * static_cast<std::size_t>(format.storage_bytes())));
  ampcheck::encode(format, {}, std::span<const float>(shared_input<float>(n)), codes);
  compare_with_memcpy(state, shared_input<float>(n), [&] { ampcheck::decode(format, codes, std::span(values)); });
  ampcheck::set_simd_target("");
}

struct NamedMode {
  const char* name;
  Rounding rounding;
};
constexpr NamedMode kModes[] = {{"nearest_even", Rounding::nearest_even},
                                {"toward_zero", Rounding::toward_zero},
                                {"up", Rounding::up},
                                {"nearest_away", Rounding::nearest_away},
                                {"to_odd", Rounding::to_odd},
                                {"stochastic", Rounding::stochastic}};
constexpr FloatFormat kMain[] = {ampcheck::kFp16, ampcheck::kBf16, ampcheck::kE4m3fn, ampcheck::kE5m2};
constexpr std::int64_t kSizes[] = {1'000'000, 100'000'000};

void record_worst(std::string_view target, const FloatFormat& format, RoundingMode mode, std::size_t n,
                  double vs_memcpy) {
  const bool main_format = std::find(std::begin(kMain), std::end(kMain), format) != std::end(kMain);
  const bool main_mode = mode.rounding == Rounding::nearest_even || mode.rounding == Rounding::toward_zero;
  const bool wide = target.find("AVX3") != target.npos, avx2 = target == "AVX2";
  if (!main_format || !main_mode || !(wide || avx2)) return;
  static std::map<std::string, double> worst;
  const std::string figure =
      "speed of fp32 to 16 and 8 bits, " + std::string(target) + ", " + std::to_string(n) + " elements / memcpy";
  const auto seen = worst.emplace(figure, vs_memcpy).first;
  seen->second = std::min(seen->second, vs_memcpy);
  ampcheck::bench::record_figure(figure, ampcheck::bench::Goal::at_least, wide ? 0.9 : (n > 10'000'000 ? 0.6 : 0.4),
                                 seen->second, "x");
}

using Function = void (*)(benchmark::State&, std::string_view, FloatFormat, RoundingMode);

void add(std::string_view what, Function function, std::string_view target, const FloatFormat& format,
         const NamedMode& mode, std::int64_t n) {
  const std::string name =
      "rounding/" + std::string(what) + "/" + std::string(format.name) + "/" + mode.name + "/" + std::string(target);
  benchmark::RegisterBenchmark(name.c_str(), function, target, format, RoundingMode{mode.rounding})
      ->Arg(n)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(n > 10'000'000 ? 5 : 40);
}

/// Every target this machine has; the two largest sizes for the modes with a figure, one size for the rest.
bool register_all() {
  for (const std::int64_t n : kSizes)
    for (const std::string_view target : ampcheck::simd_targets())
      for (const FloatFormat& format : kMain)
        for (const NamedMode& mode : {kModes[0], kModes[1]}) add("fp32_to", BM_Encode<float>, target, format, mode, n);
  for (const std::string_view target : ampcheck::simd_targets()) {
    for (const FloatFormat& format : {ampcheck::kBf16, ampcheck::kE4m3fn})
      for (const NamedMode& mode : kModes) add("fp32_to", BM_Encode<float>, target, format, mode, 1'000'000);
    for (const FloatFormat& format : ampcheck::all_formats()) {
      if (format == ampcheck::kFp64) continue;
      add("fp32_to", BM_Encode<float>, target, format, kModes[0], 1'000'000);
      add("fp64_to", BM_Encode<double>, target, format, kModes[0], 1'000'000);
      add("values_to", BM_RoundValues, target, format, kModes[0], 100'000);
      add("to_fp32", BM_Decode, target, format, kModes[0], 1'000'000);
    }
  }
  return true;
}

const bool registered = register_all();

}  // namespace
