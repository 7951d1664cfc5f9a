// SPDX-License-Identifier: Apache-2.0
// Fields on their way between processes: numbers as 8 bytes, texts and lists behind their length.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "src/error.h"
#include "src/finding.h"

namespace ampcheck::tools {

class Writer {
 public:
  void put(std::uint64_t value) { out_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(std::int64_t value) { put(static_cast<std::uint64_t>(value)); }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    out_ += text;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// What a worker sent is not trusted: nothing is read or allocated beyond what is there.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  void get(std::uint64_t& value) {
    if (rest_.size() < sizeof value) fail();
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
  }
  void get(std::int64_t& value) { value = static_cast<std::int64_t>(number()); }
  void get(double& value) { value = std::bit_cast<double>(number()); }
  void get(std::string& text) {
    const std::uint64_t size = number();
    if (size > rest_.size()) fail();
    text = rest_.substr(0, size);
    rest_.remove_prefix(size);
  }
  /// Entries of a list; each takes at least `least` bytes.
  std::size_t count(std::size_t least) {
    const std::uint64_t n = number();
    if (n > rest_.size() / least) fail();
    return n;
  }
  void get(Verdict& verdict) { verdict = static_cast<Verdict>(up_to(static_cast<std::uint64_t>(Verdict::crash))); }
  void get(CheckId::Kind& kind) {
    kind = static_cast<CheckId::Kind>(up_to(static_cast<std::uint64_t>(CheckId::Kind::written)));
  }
  void get(bool& value) { value = up_to(1) != 0; }
  void get(int& value) {
    const auto wide = static_cast<std::int64_t>(number());
    value = static_cast<int>(wide);
    if (value != wide) fail();
  }
  void get(Code& code) {
    std::string text;
    get(text);
    code = read_code(text);
  }
  void get(Dtype& dtype) {
    std::string text;
    get(text);
    const DtypeInfo* const known = find_dtype(text);
    if (known == nullptr) fail();
    dtype = known->dtype;
  }
  void end() const {
    if (!rest_.empty()) fail();
  }

 private:
  std::uint64_t up_to(std::uint64_t largest) {
    const std::uint64_t value = number();
    if (value > largest) fail();
    return value;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    get(value);
    return value;
  }
  [[noreturn]] static void fail() { throw Error("[worker] got a result that cannot be read"); }

  std::string_view rest_;
};

}  // namespace ampcheck::tools
