// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "src/rounding.h"
#include "tools/gpu/instructions.h"
#include "tools/gpu/probe.h"

namespace ampcheck::gpu {

namespace {

namespace fs = std::filesystem;

std::string hex(std::uint32_t bits) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", bits);
  return text;
}

constexpr std::pair<const char*, Input> kInputs[] = {
    {"fp16", Input::fp16}, {"bf16", Input::bf16}, {"tf32", Input::tf32}, {"e4m3", Input::e4m3}, {"e5m2", Input::e5m2}};

Input input_named(const std::string& name) {
  for (const auto& [known, input] : kInputs)
    if (name == known) return input;
  throw std::runtime_error("[captures] type, got '" + name + "', want fp16, bf16, tf32, e4m3 or e5m2");
}

std::uint32_t fp16_of(float value) {
  std::uint16_t code = 0;
  encode(kFp16, {}, std::span<const float>(&value, 1), &code);
  return code;
}

/// Bits of the fp16 value as fp32, as captures have them.
std::uint32_t widened(std::uint32_t fp16) {
  const auto code = static_cast<std::uint16_t>(fp16);
  float value = 0;
  decode(kFp16, &code, std::span<float>(&value, 1));
  return std::bit_cast<std::uint32_t>(value);
}

struct Capture {
  Vectors vectors;
  std::vector<std::uint32_t> d;  ///< fp32 bits
};

std::string value_of(const std::string& header, const std::string& key) {
  const std::size_t at = header.find(" " + key + "=");
  if (at == std::string::npos) throw std::runtime_error("[captures] header, got no " + key + "= in '" + header + "'");
  const std::size_t begin = at + key.size() + 2;
  return header.substr(begin, header.find(' ', begin) - begin);
}

/// The numbers up to the next "|", padded with zeros.
void read_codes(std::istream& in, int count, std::vector<std::uint32_t>& out) {
  const std::size_t end = out.size() + static_cast<std::size_t>(count);
  std::string word;
  while (in >> word && word != "|") out.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  if (out.size() > end) throw std::runtime_error("[captures] got a longer vector than the instruction takes");
  out.resize(end, 0);
}

Capture read_capture(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  if (!std::getline(in, line)) throw std::runtime_error("[captures] got nothing from " + file.string());
  Capture out;
  out.vectors.input = input_named(value_of(line, "in"));
  out.vectors.output = value_of(line, "out") == "fp16" ? Output::fp16 : Output::fp32;
  const int k = extent(out.vectors.input);
  while (std::getline(in, line)) {
    std::istringstream words(line);
    read_codes(words, k, out.vectors.a);
    read_codes(words, k, out.vectors.b);
    read_codes(words, 1, out.vectors.c);
    read_codes(words, 1, out.d);
  }
  if (out.vectors.output == Output::fp16)
    for (std::uint32_t& c : out.vectors.c) c = fp16_of(std::bit_cast<float>(c));
  return out;
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
    for (int i = 0; i < pair.count; ++i) v.a.push_back(code_of(input, pair.a)), v.b.push_back(code_of(input, pair.b));
  v.a.resize(static_cast<std::size_t>(extent(input)), 0), v.b.resize(v.a.size(), 0);
  const auto as_float = static_cast<float>(c);
  v.c = {output == Output::fp16 ? fp16_of(as_float) : std::bit_cast<std::uint32_t>(as_float)};
  return run(v, unit).front();
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
  out["floor"] = exponent_floor(right);
  out["captures"] = captures_again(captures, right);
  out["special"] = special_values();
  return out;
}

}  // namespace ampcheck::gpu
