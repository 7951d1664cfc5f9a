// SPDX-License-Identifier: Apache-2.0
#include "src/tensor_core/vectors.h"

#include <bit>
#include <charconv>

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
    const auto input = [&](std::string_view text) {
      Input found;
      if (!find_input(text, found)) fail("'" + std::string(text) + "'", "in=fp16, bf16, tf32, e4m3 or e5m2");
      return found;
    };
    for (std::string_view word = word_of(line); !word.empty(); word = word_of(line)) {
      const std::size_t at = word.find('=');
      if (at == std::string_view::npos) continue;
      const std::string_view key = word.substr(0, at), value = word.substr(at + 1);
      if (key == "gpu") out_.gpu = value;
      if (key == "in") out_.a = input(value);
      if (key == "in_b") out_.b = input(value);
      Output output;
      if (key != "out") continue;
      if (!find_output(value, output)) fail("'" + std::string(value) + "'", "out=fp32 or fp16");
      out_.output = output;
    }
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
    if (fields.size() != 3 && fields.size() != 4)
      fail(std::to_string(fields.size()) + " fields", "a | b | c, or a | b | c | d");
    if (fields[0].empty() || fields[0].size() != fields[1].size())
      fail(std::to_string(fields[0].size()) + " numbers of a and " + std::to_string(fields[1].size()) + " of b",
           "as many of either, one at least");
    for (std::size_t i = 2; i < fields.size(); ++i)
      if (fields[i].size() != 1)
        fail(std::to_string(fields[i].size()) + (i == 2 ? " numbers of c" : " numbers of d"), "one");
    Vector out{line_, std::move(fields[0]), std::move(fields[1]), fields[2][0], {}};
    if (fields.size() == 4) out.d = fields[3][0];
    return out;
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
