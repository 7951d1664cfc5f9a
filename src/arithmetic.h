// SPDX-License-Identifier: Apache-2.0
// Reads + - * / ( ) over leaves, as descriptions of ops write numbers: extents ("D/2"), arguments ("int N * D").
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace ampcheck {

/// sum = product { (+|-) product }; product = factor { (*|/) factor }; factor = - factor | ( sum ) | leaf.
/// `Reader` derives from it: Value leaf(), Value combine(char op, Value, Value), Value negated(Value), [[noreturn]]
/// void fail(std::size_t at, const std::string& what) const.
template <class Reader, class Value>
class ArithmeticReader {
 public:
  explicit ArithmeticReader(const std::string& text) : text_(text) {}

  Value all() {
    Value out = sum();
    skip();
    if (at_ != text_.size()) self().fail(at_, "got '" + text_.substr(at_) + "', want an operator or the end");
    return out;
  }

  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

 protected:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string here() const { return at_ == text_.size() ? "the end" : "'" + text_.substr(at_, 1) + "'"; }
  void want(char c) {
    if (!take(c)) self().fail(at_, "got " + here() + ", want '" + c + "'");
  }
  /// Letters, digits and _, not beginning with a digit; empty where none stand.
  std::string word() {
    skip();
    const std::size_t start = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > start && is_digit(text_[at_])))) ++at_;
    return text_.substr(start, at_ - start);
  }

  Value sum() {
    Value out = product();
    for (;;)
      if (take('+'))
        out = self().combine('+', std::move(out), product());
      else if (take('-'))
        out = self().combine('-', std::move(out), product());
      else
        return out;
  }
  Value product() {
    Value out = factor();
    for (;;)
      if (take('*'))
        out = self().combine('*', std::move(out), factor());
      else if (take('/'))
        out = self().combine('/', std::move(out), factor());
      else
        return out;
  }

  const std::string& text_;
  std::size_t at_ = 0;

 private:
  static constexpr int kMostNested = 64;

  Value factor() {
    if (++depth_ > kMostNested) self().fail(at_, "got an expression nested deeper than " + std::to_string(kMostNested));
    Value out = take('-') ? self().negated(factor()) : take('(') ? closed(sum()) : self().leaf();
    --depth_;
    return out;
  }
  Value closed(Value inner) {
    want(')');
    return inner;
  }

  Reader& self() { return static_cast<Reader&>(*this); }

  int depth_ = 0;
};

}  // namespace ampcheck
