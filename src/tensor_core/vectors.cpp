// SPDX-License-Identifier: Apache-2.0
#include "src/tensor_core/vectors.h"

#include <bit>
#include <charconv>
#include <map>
#include <utility>

#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::tensor_core {

namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Vectors read() {
    while (!text_.empty()) {
      ++line_;
      const std::size_t end = text_.find('\n');
      std::string_view line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with('#'))
        read_heading(line.substr(1));
      else if (line.find_first_not_of(" \t") != std::string_view::npos)
        out_.all.push_back(read_vector(line));
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& got, const std::string& want) const {
    throw Error("[vectors] " + name_ + ":" + std::to_string(line_) + ": got " + got + ", want " + want);
  }

  /// The next word of a line; empty at its end.
  static std::string_view word_of(std::string_view& line) {
    const std::size_t begin = line.find_first_not_of(" \t");
    line.remove_prefix(begin == std::string_view::npos ? line.size() : begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(word.size());
    return word;
  }

  void read_heading(std::string_view line) {
    std::map<std::string_view, std::string_view> said;
    for (std::string_view word = word_of(line); !word.empty(); word = word_of(line))
      if (const std::size_t at = word.find('='); at != std::string_view::npos)
        said[word.substr(0, at)] = word.substr(at + 1);
    if (said.contains("gpu")) out_.gpu = said["gpu"];
    if (said.contains("scaled")) return read_scaled(said);
    const auto input = [&](std::string_view key, std::optional<Input>& to) {
      if (!said.contains(key)) return;
      Input found;
      if (!find_input(said[key], found)) fail("'" + std::string(said[key]) + "'", "in=fp16, bf16, tf32, e4m3 or e5m2");
      to = found;
    };
    input("in", out_.a);
    input("in_b", out_.b);
    if (!said.contains("out")) return;
    Output output;
    if (!find_output(said["out"], output)) fail("'" + std::string(said["out"]) + "'", "out=fp32 or fp16");
    out_.output = output;
  }

  void read_scaled(std::map<std::string_view, std::string_view>& said) {
    using Kind = ScaledInstruction::Kind;
    ScaledInstruction out;
    const bool fp4 = said["scaled"] == "mxf4nvf4";
    if (!fp4 && said["scaled"] != "mxf8f6f4")
      fail("'" + std::string(said["scaled"]) + "'", "scaled=mxf8f6f4 or mxf4nvf4");
    out.kind = fp4 ? Kind::mxf4nvf4 : Kind::mxf8f6f4;
    constexpr std::pair<std::string_view, const FloatFormat*> kFactors[] = {
        {"e4m3", &kE4m3fn}, {"e5m2", &kE5m2}, {"e3m2", &kE3m2fn}, {"e2m3", &kE2m3fn}, {"e2m1", &kE2m1fn}};
    const auto factor = [&](std::string_view key, FloatFormat& to) {
      for (const auto& [word, format] : kFactors)
        if (said[key] == word) {
          to = *format;
          return;
        }
      fail(said[key].empty() ? "no " + std::string(key) + "=" : "'" + std::string(said[key]) + "'",
           fp4 ? "in=e2m1" : "in=e4m3, e5m2, e3m2, e2m3 or e2m1");
    };
    factor("in", out.a);
    if (said.contains("in_b"))
      factor("in_b", out.b);
    else
      out.b = out.a;
    if (const std::string_view scale = said["scale"]; scale == "ue4m3")
      out.scale = kE4m3fn;
    else if (!scale.empty() && scale != "ue8m0")
      fail("'" + std::string(scale) + "'", "scale=ue8m0 or ue4m3");
    out_.scaled = out;
  }

  std::vector<std::uint32_t> read_codes(std::string_view field) const {
    std::vector<std::uint32_t> out;
    for (std::string_view word = word_of(field); !word.empty(); word = word_of(field)) {
      if (word.starts_with("0x")) word.remove_prefix(2);
      std::uint32_t code = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), code, 16);
      if (error != std::errc() || end != word.data() + word.size())
        fail("'" + std::string(word) + "'", "a number in hex, of 32 bits at most");
      out.push_back(code);
    }
    return out;
  }

  Vector read_vector(std::string_view line) const {
    std::vector<std::vector<std::uint32_t>> fields;
    for (bool more = true; more;) {
      const std::size_t bar = line.find('|');
      fields.push_back(read_codes(line.substr(0, bar)));
      more = bar != std::string_view::npos;
      if (more) line.remove_prefix(bar + 1);
    }
    const bool scaled = out_.scaled.has_value();
    const std::size_t at_c = scaled ? 4 : 2;
    if (fields.size() != at_c + 1 && fields.size() != at_c + 2)
      fail(std::to_string(fields.size()) + " fields",
           scaled ? "a | b | scales of a | scales of b | c, and | d where it is known" : "a | b | c, or a | b | c | d");
    if (fields[0].empty() || fields[0].size() != fields[1].size())
      fail(std::to_string(fields[0].size()) + " numbers of a and " + std::to_string(fields[1].size()) + " of b",
           "as many of either, one at least");
    for (std::size_t i = at_c; i < fields.size(); ++i)
      if (fields[i].size() != 1)
        fail(std::to_string(fields[i].size()) + (i == at_c ? " numbers of c" : " numbers of d"), "one");
    Vector out{.line = line_, .a = std::move(fields[0]), .b = std::move(fields[1]), .c = fields[at_c][0], .d = {}};
    if (scaled) {
      out.a_scales = std::move(fields[2]);
      out.b_scales = std::move(fields[3]);
      require_sizes(out);
    }
    if (fields.size() == at_c + 2) out.d = fields[at_c + 1][0];
    return out;
  }

  void require_sizes(const Vector& v) const {
    const auto k = static_cast<std::size_t>(out_.scaled->k()),
               scales = k / static_cast<std::size_t>(out_.scaled->scaled_together());
    if (v.a.size() != k) fail(std::to_string(v.a.size()) + " numbers of a", std::to_string(k));
    if (v.a_scales.size() != scales || v.b_scales.size() != scales)
      fail(std::to_string(v.a_scales.size()) + " and " + std::to_string(v.b_scales.size()) + " scales",
           std::to_string(scales) + " of a and of b");
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t line_ = 0;
  Vectors out_;
};

}  // namespace

Vectors read_vectors(std::string_view text, const std::string& name) { return Reader(text, name).read(); }

std::uint32_t from_fp32(Output output, std::uint32_t bits) {
  if (output == Output::fp32) return bits;
  return static_cast<std::uint32_t>(encode_scalar(kFp16, decode_scalar(kFp32, bits)));
}

std::uint32_t to_fp32(Output output, std::uint32_t bits) {
  if (output == Output::fp32) return bits;
  return std::bit_cast<std::uint32_t>(static_cast<float>(decode_scalar(kFp16, bits)));
}

}  // namespace ampcheck::tensor_core
