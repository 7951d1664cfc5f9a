// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "src/rounding.h"
#include "tools/gpu/captures.h"
#include "tools/gpu/fused_dot.h"
#include "tools/gpu/probe.h"

namespace ampcheck::gpu {

namespace {

namespace fs = std::filesystem;

std::string hex(std::uint32_t bits) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}

struct Attempt {
  Unit unit;
  bool with_c;
  bool expected;  ///< to have the captured bits
};

/// 8 bits into fp32 were captured from wgmma without c; everything else from mma.
std::vector<Attempt> attempts(const Vectors& v) {
  if (v.input != Input::e4m3 && v.input != Input::e5m2) return {{Unit::mma, true, true}};
  if (v.output == Output::fp16) return {{Unit::mma, true, true}};
  return {{Unit::wgmma, false, true}, {Unit::wgmma, true, false}, {Unit::mma, true, false}, {Unit::mma, false, false}};
}

Json compared(const Capture& capture, const Attempt& attempt, const std::string& name, bool& right) {
  Vectors vectors = capture.vectors;
  if (!attempt.with_c) std::fill(vectors.c.begin(), vectors.c.end(), 0u);
  const std::vector<std::uint32_t> got = run(vectors, attempt.unit);
  std::size_t differ = 0;
  Json first;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::uint32_t d = vectors.output == Output::fp16 ? widened(got[i]) : got[i];
    if (d == capture.d[i]) continue;
    if (differ++ == 0) first = {{"line", i + 2}, {"got", hex(d)}, {"captured", hex(capture.d[i])}};
  }
  if (attempt.expected && (differ != 0 || got.empty())) right = false;
  const std::string how = std::string(attempt.unit == Unit::mma ? "mma" : "wgmma") + (attempt.with_c ? "" : ", c = 0");
  say(name + " by " + how + ": " + std::to_string(differ) + " of " + std::to_string(got.size()) + " differ" +
      (attempt.expected ? "" : " (as a record alone)"));
  return {{"file", name},
          {"instruction", how},
          {"vectors", got.size()},
          {"differ", differ},
          {"expected_alike", attempt.expected},
          {"first", first}};
}

Json captures_again(const fs::path& folder, bool& right) {
  Json out = Json::array();
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) say("no captures in the pack: nothing to compare with");
  for (const fs::path& file : files) {
    const Capture capture = read_capture(file);
    for (const Attempt& attempt : attempts(capture.vectors))
      out.push_back(compared(capture, attempt, file.stem().string(), right));
  }
  return out;
}

struct Instruction {
  const char* name;
  Input input;
  Output output;
  Unit unit;
  int bits;
};

Vectors random_vectors(const Instruction& instruction, std::size_t count) {
  Vectors v{.input = instruction.input, .output = instruction.output};
  std::uint64_t state = 7;
  const auto next = [&state](int bits) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> (64 - bits));
  };
  const auto k = static_cast<std::size_t>(extent(v.input));
  for (std::size_t i = 0; i < count; ++i) {
    v.c.push_back(next(v.output == Output::fp16 ? 16 : 32));
    for (std::size_t j = 0; j < k; ++j) {
      v.a.push_back(next(instruction.bits));
      v.b.push_back(next(instruction.bits));
    }
  }
  return v;
}

/// How often the instruction and the model differ, with either floor, and the first time that they do.
Json compared_on(const Instruction& instruction, const Vectors& v) {
  const std::size_t k = static_cast<std::size_t>(extent(v.input)), count = v.c.size();
  const std::vector<std::uint32_t> got = run(v, instruction.unit);
  std::size_t differ[2] = {}, first = count;
  for (std::size_t i = 0; i < count; ++i)
    for (const Floor floor : {Floor::of_output, Floor::of_zeros}) {
      const std::uint32_t want = instruction_dot(v.input, v.output, instruction.unit, {&v.a[i * k], k},
                                                 {&v.b[i * k], k}, v.c[i], {.floor = floor});
      if (got[i] == want) continue;
      ++differ[static_cast<int>(floor)];
      first = std::min(first, i);
    }
  say(std::string(instruction.name) + " on random bits: " + std::to_string(differ[0]) + " of " + std::to_string(count) +
      " differ from the model clamped by the output, " + std::to_string(differ[1]) + " from that clamped by zeros");
  Json entry = {{"instruction", instruction.name},
                {"vectors", count},
                {"differ_clamped", differ[0]},
                {"differ_unclamped", differ[1]}};
  if (first < count) {
    entry["first"] = {{"c", hex(v.c[first])}, {"got", hex(got[first])}, {"a", Json::array()}, {"b", Json::array()}};
    for (std::size_t j = 0; j < k; ++j) {
      entry["first"]["a"].push_back(hex(v.a[first * k + j]));
      entry["first"]["b"].push_back(hex(v.b[first * k + j]));
    }
  }
  return entry;
}

/// Random bits, infinities, NaNs and subnormals among them, against the model. A record alone: nobody has written down
/// what a core does with all of them.
Json random_bits() {
  constexpr Instruction kAll[] = {{"mma fp16 to fp32", Input::fp16, Output::fp32, Unit::mma, 16},
                                  {"mma fp16 to fp16", Input::fp16, Output::fp16, Unit::mma, 16},
                                  {"mma bf16 to fp32", Input::bf16, Output::fp32, Unit::mma, 16},
                                  {"mma tf32 to fp32", Input::tf32, Output::fp32, Unit::mma, 32},
                                  {"mma e4m3 to fp32", Input::e4m3, Output::fp32, Unit::mma, 8},
                                  {"mma e5m2 to fp16", Input::e5m2, Output::fp16, Unit::mma, 8},
                                  {"wgmma e4m3 to fp32", Input::e4m3, Output::fp32, Unit::wgmma, 8},
                                  {"wgmma e5m2 to fp32", Input::e5m2, Output::fp32, Unit::wgmma, 8}};
  constexpr std::size_t kCount = 50'000;
  Json out = Json::array();
  for (const Instruction& instruction : kAll)
    out.push_back(compared_on(instruction, random_vectors(instruction, kCount)));
  return out;
}

/// Two factors that stand in the first `count` places.
struct Pair {
  double a, b;
  int count = 1;
};

std::uint32_t code_of(Input input, double value) {
  if (input == Input::tf32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const FloatFormat& format = input == Input::fp16   ? kFp16
                              : input == Input::bf16 ? kBf16
                              : input == Input::e4m3 ? kE4m3fn
                                                     : kE5m2;
  std::uint16_t code = 0;
  encode(format, {}, std::span<const double>(&value, 1), &code);
  return code;
}

std::uint32_t one(Input input, Output output, Unit unit, const std::vector<Pair>& pairs, double c = 0) {
  Vectors v{.input = input, .output = output};
  for (const Pair& pair : pairs)
    for (int i = 0; i < pair.count; ++i) {
      v.a.push_back(code_of(input, pair.a));
      v.b.push_back(code_of(input, pair.b));
    }
  v.a.resize(static_cast<std::size_t>(extent(input)), 0);
  v.b.resize(v.a.size(), 0);
  const auto as_float = static_cast<float>(c);
  v.c = {output == Output::fp16 ? fp16_of(as_float) : std::bit_cast<std::uint32_t>(as_float)};
  return run(v, unit).front();
}

/// Every instruction on small integers, of which each order and width gives the exact sum: that numbers stand where
/// this program believes them to stand.
Json integers(bool& right) {
  struct Instruction {
    const char* name;
    Input input;
    Output output;
    Unit unit;
  };
  constexpr Instruction kAll[] = {{"mma fp16 to fp32", Input::fp16, Output::fp32, Unit::mma},
                                  {"mma fp16 to fp16", Input::fp16, Output::fp16, Unit::mma},
                                  {"mma bf16 to fp32", Input::bf16, Output::fp32, Unit::mma},
                                  {"mma tf32 to fp32", Input::tf32, Output::fp32, Unit::mma},
                                  {"mma e4m3 to fp32", Input::e4m3, Output::fp32, Unit::mma},
                                  {"mma e4m3 to fp16", Input::e4m3, Output::fp16, Unit::mma},
                                  {"mma e5m2 to fp32", Input::e5m2, Output::fp32, Unit::mma},
                                  {"mma e5m2 to fp16", Input::e5m2, Output::fp16, Unit::mma},
                                  {"wgmma e4m3 to fp32", Input::e4m3, Output::fp32, Unit::wgmma},
                                  {"wgmma e5m2 to fp32", Input::e5m2, Output::fp32, Unit::wgmma}};
  constexpr std::size_t kCount = 100;
  Json out = Json::array();
  for (const Instruction& instruction : kAll) {
    Vectors v{.input = instruction.input, .output = instruction.output};
    std::vector<std::uint32_t> want;
    std::uint32_t state = 1;
    const auto next = [&state] {  // -4 to 4
      state = state * 1664525u + 1013904223u;
      return static_cast<int>((state >> 16) % 9) - 4;
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      int sum = 10 * next();
      const auto bits = [&](int value) {
        const auto as_float = static_cast<float>(value);
        return v.output == Output::fp16 ? fp16_of(as_float) : std::bit_cast<std::uint32_t>(as_float);
      };
      v.c.push_back(bits(sum));
      for (int k = 0; k < extent(v.input); ++k) {
        const int a = next(), b = next();
        v.a.push_back(code_of(v.input, a));
        v.b.push_back(code_of(v.input, b));
        sum += a * b;
      }
      want.push_back(bits(sum));
    }
    const std::vector<std::uint32_t> got = run(v, instruction.unit);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < kCount; ++i) differ += got[i] != want[i];
    if (differ != 0) right = false;
    say(std::string(instruction.name) + " on small integers: " + std::to_string(differ) + " of " +
        std::to_string(kCount) + " differ");
    out.push_back({{"instruction", instruction.name}, {"vectors", kCount}, {"differ", differ}});
  }
  return out;
}

/// Two public models disagree on how small the exponent may be to which the products are aligned: "clamped" knows a
/// least exponent, "unclamped" has none but that of a zero operand.
Json exponent_floor(bool& right) {
  struct Question {
    const char* name;
    Input input;
    Output output;
    std::vector<Pair> pairs;
    std::uint32_t clamped, unclamped;
  };
  const auto p = [](int k) { return std::ldexp(1.0, k); };
  const Question questions[] = {
      {"bf16 to fp32, 8 products 2^-76 2^-76", Input::bf16, Output::fp32, {{p(-76), p(-76), 8}}, 1, 0},
      {"bf16 to fp32, 16 products 2^-76 2^-77", Input::bf16, Output::fp32, {{p(-76), p(-77), 16}}, 1, 0},
      {"fp16 to fp16, 2^-12 2^-13 + 2^-24 2^-24",
       Input::fp16,
       Output::fp16,
       {{p(-12), p(-13)}, {p(-24), p(-24)}},
       0,
       1},
      {"fp16 to fp16, 2^-12 2^-13 + 2^-23 2^-23 (control)",
       Input::fp16,
       Output::fp16,
       {{p(-12), p(-13)}, {p(-23), p(-23)}},
       1,
       1}};
  Json out = Json::array();
  for (const Question& q : questions) {
    const std::uint32_t got = one(q.input, q.output, Unit::mma, q.pairs);
    const std::string answer = got == q.clamped && got == q.unclamped ? "both"
                               : got == q.clamped                     ? "clamped"
                               : got == q.unclamped                   ? "unclamped"
                                                                      : "neither";
    if (q.clamped == q.unclamped && answer != "both") right = false;
    say(std::string(q.name) + ": " + hex(got) + ", as the model: " + answer);
    out.push_back({{"vector", q.name},
                   {"got", hex(got)},
                   {"clamped", hex(q.clamped)},
                   {"unclamped", hex(q.unclamped)},
                   {"answer", answer}});
  }
  out.push_back(
      {{"vector", "8-wide bf16 to fp32, 2^-76 2^-76"}, {"answer", nullptr}, {"note", "asks for an Ampere GPU"}});
  return out;
}

/// Bits of what nobody has written down.
Json special_values() {
  struct Question {
    const char* name;
    Input input;
    Output output;
    std::vector<Pair> pairs;
    double c = 0;
  };
  const double inf = INFINITY, nan = NAN, tiny = std::ldexp(1.0, -75);
  const Question questions[] = {
      {"all products -0, c = -0", Input::fp16, Output::fp32, {{-0.0, 1, 16}}, -0.0},
      {"1 - 1", Input::fp16, Output::fp32, {{1, 1}, {-1, 1}}},
      {"negative, below every subnormal", Input::bf16, Output::fp32, {{-tiny, tiny / 2}}},
      {"inf 0", Input::fp16, Output::fp32, {{inf, 0}}},
      {"inf - inf", Input::fp16, Output::fp32, {{inf, 1}, {-inf, 1}}},
      {"NaN in", Input::fp16, Output::fp32, {{nan, 1}}},
      {"NaN in, fp16 out", Input::fp16, Output::fp16, {{nan, 1}}},
      {"c is NaN", Input::fp16, Output::fp32, {{1, 1}}, nan},
      {"bf16 2^127 2", Input::bf16, Output::fp32, {{std::ldexp(1.0, 127), 2}}},
      {"fp16 out, 65504 + 65504", Input::fp16, Output::fp16, {{65504, 1, 2}}},
      {"fp16 out, 65504 + 16", Input::fp16, Output::fp16, {{65504, 1}, {16, 1}}},
      {"tf32 1 + 2^-11, below its last bit", Input::tf32, Output::fp32, {{1 + 0x1p-11, 1}}},
      {"tf32 1 + 2^-10 - 2^-23, below its last bit", Input::tf32, Output::fp32, {{1 + 0x1p-10 - 0x1p-23, 1}}},
      {"e5m2 inf", Input::e5m2, Output::fp32, {{inf, 1}}},
      {"e5m2 NaN", Input::e5m2, Output::fp32, {{nan, 1}}},
      {"e4m3 NaN", Input::e4m3, Output::fp32, {{nan, 1}}},
      {"e4m3 1, c = 1 + 2^-23", Input::e4m3, Output::fp32, {{1, 1}}, 1 + 0x1p-23},
      {"e4m3 2^-9 2^-9, c = 1", Input::e4m3, Output::fp32, {{0x1p-9, 0x1p-9}}, 1}};
  Json out = Json::array();
  for (const Question& q : questions) {
    Json entry = {{"vector", q.name}, {"mma", hex(one(q.input, q.output, Unit::mma, q.pairs, q.c))}};
    if ((q.input == Input::e4m3 || q.input == Input::e5m2) && q.output == Output::fp32)
      entry["wgmma"] = hex(one(q.input, q.output, Unit::wgmma, q.pairs, q.c));
    say(std::string(q.name) + ": " + entry["mma"].get<std::string>() +
        (entry.contains("wgmma") ? ", wgmma " + entry["wgmma"].get<std::string>() : ""));
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

Json tensor_cores(const fs::path& captures, bool& right) {
  const std::string name = gpu_name();
  Json out = {{"gpu", name}};
  out["integers"] = integers(right);
  out["floor"] = exponent_floor(right);
  out["captures"] = captures_again(captures, right);
  out["special"] = special_values();
  out["random"] = random_bits();
  return out;
}

}  // namespace ampcheck::gpu
