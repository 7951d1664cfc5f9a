// SPDX-License-Identifier: Apache-2.0
#include "src/ptx/lexer.h"

#include "src/ptx/text.h"

namespace ampcheck::ptx {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<Token> all() {
    for (;;) {
      skip();
      if (at_ == text_.size()) break;
      next();
    }
    out_.push_back({Token::Kind::end, "", line_});
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f') {
        ++at_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        skip_comment();
      } else {
        return;
      }
    }
  }

  void skip_comment() {
    const int start = line_;
    at_ += 2;
    while (at_ < text_.size() && !(text_[at_] == '*' && peek(1) == '/')) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
    if (at_ == text_.size()) fail(path_, start, "got a comment without its end, want */");
    at_ += 2;
  }

  void next() {
    const std::size_t start = at_;
    const char c = text_[at_];
    Token::Kind kind = Token::Kind::mark;
    if (is_digit(c)) {
      kind = Token::Kind::number;
      take_number();
    } else if (begins_word(c)) {
      kind = Token::Kind::word;
      while (begins_word(peek()) || is_digit(peek()) || (peek() == ':' && peek(1) == ':')) at_ += peek() == ':' ? 2 : 1;
    } else if (c == '"') {
      take_text();
      return;
    } else if (std::string_view("{}()[]<>,;:=+-*/|&@!^~?").find(c) != std::string_view::npos) {
      ++at_;
    } else {
      fail(
          path_, line_,
          std::string("got a character that no PTX holds") + (c > ' ' && c < 0x7f ? std::string(": '") + c + "'" : ""));
    }
    out_.push_back({kind, text_.substr(start, at_ - start), line_});
  }

  /// Digits and letters: 0x1F, 0f3F800000, 12U; of a decimal float also its point and the sign of its exponent.
  void take_number() {
    const bool decimal = !(text_[at_] == '0' && (peek(1) == 'x' || peek(1) == 'X' || peek(1) == 'f' || peek(1) == 'F' ||
                                                 peek(1) == 'd' || peek(1) == 'D' || peek(1) == 'b'));
    const auto goes_on = [&] {
      const char c = peek();
      if (is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
      if (decimal && c == '.') return true;
      const char before = text_[at_ - 1];
      return decimal && (c == '+' || c == '-') && (before == 'e' || before == 'E');
    };
    ++at_;
    while (at_ < text_.size() && goes_on()) ++at_;
  }

  void take_text() {
    const std::size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') at_ += peek() == '\\' ? 2 : 1;
    if (at_ >= text_.size() || text_[at_] != '"') fail(path_, line_, "got a string without its end");
    out_.push_back({Token::Kind::text, text_.substr(start, at_ - start), line_});
    ++at_;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> out_;
};

}  // namespace

void fail(const std::string& path, int line, const std::string& what) {
  throw PtxError("[" + path + ":" + std::to_string(line) + "] " + what);
}

std::vector<Token> tokens_of(std::string_view text, const std::string& path) { return Lexer(text, path).all(); }

}  // namespace ampcheck::ptx
