// SPDX-License-Identifier: Apache-2.0
// The files of captured instructions: one line each, a | b | c | d in hex.
#pragma once

#include <bit>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "src/rounding.h"
#include "tools/gpu/instructions.h"

namespace ampcheck::gpu {

inline constexpr std::pair<const char*, Input> kInputs[] = {
    {"fp16", Input::fp16}, {"bf16", Input::bf16}, {"tf32", Input::tf32}, {"e4m3", Input::e4m3}, {"e5m2", Input::e5m2}};

inline Input input_named(const std::string& name) {
  for (const auto& [known, input] : kInputs)
    if (name == known) return input;
  throw std::runtime_error("[captures] type, got '" + name + "', want fp16, bf16, tf32, e4m3 or e5m2");
}

inline std::uint32_t fp16_of(float value) {
  std::uint16_t code = 0;
  encode(kFp16, {}, std::span<const float>(&value, 1), &code);
  return code;
}

/// Bits of the fp16 value as fp32, as captures have them.
inline std::uint32_t widened(std::uint32_t fp16) {
  const auto code = static_cast<std::uint16_t>(fp16);
  float value = 0;
  decode(kFp16, &code, std::span<float>(&value, 1));
  return std::bit_cast<std::uint32_t>(value);
}

struct Capture {
  Vectors vectors;
  std::vector<std::uint32_t> d;  ///< fp32 bits
};

inline std::string value_of(const std::string& header, const std::string& key) {
  const std::size_t at = header.find(" " + key + "=");
  if (at == std::string::npos) throw std::runtime_error("[captures] header, got no " + key + "= in '" + header + "'");
  const std::size_t begin = at + key.size() + 2;
  return header.substr(begin, header.find(' ', begin) - begin);
}

/// The numbers up to the next "|", padded with zeros.
inline void read_codes(std::istream& in, int count, std::vector<std::uint32_t>& out) {
  const std::size_t end = out.size() + static_cast<std::size_t>(count);
  std::string word;
  while (in >> word && word != "|") out.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  if (out.size() > end) throw std::runtime_error("[captures] got a longer vector than the instruction takes");
  out.resize(end, 0);
}

inline Capture read_capture(const std::filesystem::path& file) {
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

}  // namespace ampcheck::gpu
