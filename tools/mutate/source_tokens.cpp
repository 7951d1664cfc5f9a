// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/mutate/source_tokens.h"

#include <algorithm>
#include <array>

namespace ampcheck::tools {

namespace {

bool starts_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_word(char c) { return starts_word(c) || is_digit(c); }

/// Reads a source from its beginning.
class Scanner {
 public:
  explicit Scanner(std::string_view source) : source_(source) {}

  std::vector<SourceToken> all() {
    while (at_ < source_.size()) step();
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool comes(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void skip_to(std::size_t end) { at_ = std::min(end, source_.size()); }
  void take(SourceToken::Kind kind, std::size_t size) {
    size = std::min(size, source_.size() - at_);
    out_.push_back({kind, source_.substr(at_, size), at_});
    at_ += size;
  }

  void step() {
    const char c = peek();
    if (c == '\n') {
      line_begins_ = true;
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++at_;
    } else if (comes("//") || (c == '#' && line_begins_)) {
      skip_line();
    } else if (comes("/*")) {
      const std::size_t end = source_.find("*/", at_ + 2);
      skip_to(end == std::string_view::npos ? source_.size() : end + 2);
    } else {
      line_begins_ = false;
      take_token(c);
    }
  }

  /// To the end of the line, which a backslash carries on.
  void skip_line() {
    while (at_ < source_.size() && peek() != '\n') {
      if (peek() == '/' && peek(1) == '*') {  // behind a directive; it may go over lines
        const std::size_t end = source_.find("*/", at_ + 2);
        skip_to(end == std::string_view::npos ? source_.size() : end + 2);
        continue;
      }
      at_ += peek() == '\\' && at_ + 1 < source_.size() ? (peek(1) == '\r' && peek(2) == '\n' ? 3 : 2) : 1;
    }
    skip_to(at_);
  }

  void take_token(char c) {
    if (const std::size_t raw = raw_text_size(); raw > 0) return take(SourceToken::Kind::sign, raw);
    if (c == '"' || c == '\'') return take(SourceToken::Kind::sign, quoted_size(c));
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return take(SourceToken::Kind::number, number_size());
    if (starts_word(c)) {
      std::size_t size = 1;
      while (in_word(peek(size))) ++size;
      return take(SourceToken::Kind::word, size);
    }
    static constexpr std::array<std::string_view, 24> kLong = {"<<=", ">>=", "<=>", "...", "->", "::", "++", "--",
                                                               "+=",  "-=",  "*=",  "/=",  "%=", "&=", "|=", "^=",
                                                               "==",  "!=",  "<=",  ">=",  "&&", "||", "<<", ">>"};
    for (const std::string_view sign : kLong)
      if (comes(sign)) return take(SourceToken::Kind::sign, sign.size());
    take(SourceToken::Kind::sign, 1);
  }

  /// R"x(...)x" with any prefix of its encoding.
  std::size_t raw_text_size() const {
    for (const std::string_view head : {"R\"", "LR\"", "uR\"", "UR\"", "u8R\""}) {
      if (!comes(head)) continue;
      const std::size_t open = source_.find('(', at_ + head.size());
      if (open == std::string_view::npos || open - at_ > 20 + head.size()) return 0;
      const std::string_view mark = source_.substr(at_ + head.size(), open - at_ - head.size());
      for (std::size_t end = open; (end = source_.find(')', end + 1)) != std::string_view::npos;)
        if (source_.substr(end + 1).starts_with(mark) && end + 1 + mark.size() < source_.size() &&
            source_[end + 1 + mark.size()] == '"')
          return end + 2 + mark.size() - at_;
      return source_.size() - at_;
    }
    return 0;
  }

  std::size_t quoted_size(char quote) const {
    std::size_t size = 1;
    while (at_ + size < source_.size() && peek(size) != quote && peek(size) != '\n') size += peek(size) == '\\' ? 2 : 1;
    return size + 1;
  }

  std::size_t number_size() const {
    std::size_t size = 1;
    const bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    for (;; ++size) {
      const char c = peek(size), before = peek(size - 1);
      const bool exponent = hexadecimal ? before == 'p' || before == 'P' : before == 'e' || before == 'E';
      if (!in_word(c) && c != '.' && !(c == '\'' && in_word(peek(size + 1))) && !((c == '+' || c == '-') && exponent))
        return size;
    }
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_begins_ = true;
  std::vector<SourceToken> out_;
};

/// A body that is opened, and what of it is kernel code.
struct Body {
  enum class Kind { other, code, description } kind = Kind::other;
  std::size_t begins = 0;  ///< its brace
};

/// The name before the parenthesis that ends right before the brace, over words such as const and noexcept and a type
/// behind an arrow; nothing where the brace opens no body of a function, lambda or statement.
const SourceToken* opener(const std::vector<SourceToken>& tokens, const std::vector<std::size_t>& partners,
                          std::size_t brace, bool& is_body) {
  std::size_t i = brace;
  is_body = false;
  while (i > 0) {
    const SourceToken& before = tokens[i - 1];
    if (before.is(")")) {
      is_body = true;
      const std::size_t open = partners[i - 1];
      return open > 0 ? &tokens[open - 1] : nullptr;
    }
    if (before.is("else") || before.is("do") || before.is("try")) {
      is_body = true;
      return nullptr;
    }
    const bool carries_on = before.kind == SourceToken::Kind::word || before.is("->") || before.is("::") ||
                            before.is("&") || before.is("*") || before.is("<") || before.is(">");
    const bool type_or_space = before.is("namespace") || before.is("struct") || before.is("class") ||
                               before.is("enum") || before.is("union") || before.is("return");
    if (!carries_on || type_or_space || brace - i > 12) return nullptr;
    --i;
  }
  return nullptr;
}

/// Whether the brace stands among the arguments of a call that registers a kernel, within the description.
bool registers_kernel(const std::vector<SourceToken>& tokens, const std::vector<std::size_t>& partners,
                      std::size_t description, std::size_t brace) {
  for (std::size_t i = brace; i-- > description;) {
    if (!tokens[i].is("(") || partners[i] < brace || i == 0) continue;
    const SourceToken& name = tokens[i - 1];
    for (const std::string_view pass : {"forward", "backward", "jvp", "double_backward"})
      if (name.is(pass)) return true;
  }
  return false;
}

}  // namespace

std::vector<SourceToken> tokens_of(std::string_view source) { return Scanner(source).all(); }

std::vector<std::size_t> partners_of(const std::vector<SourceToken>& tokens) {
  std::vector<std::size_t> out(tokens.size()), open;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    out[i] = i;
    const std::string_view text = tokens[i].text;
    if (text == "(" || text == "[" || text == "{") open.push_back(i);
    if ((text != ")" && text != "]" && text != "}") || open.empty()) continue;
    const char want = text == ")" ? '(' : text == "]" ? '[' : '{';
    if (tokens[open.back()].text.front() != want) continue;
    out[i] = open.back();
    out[open.back()] = i;
    open.pop_back();
  }
  return out;
}

std::vector<bool> kernel_code(const std::vector<SourceToken>& tokens, const std::vector<std::size_t>& partners) {
  std::vector<bool> out(tokens.size(), false);
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].is("}") && !bodies.empty() && partners[i] == bodies.back().begins) bodies.pop_back();
    const Body::Kind around = bodies.empty() ? Body::Kind::other : bodies.back().kind;
    out[i] = around == Body::Kind::code;
    if (!tokens[i].is("{") || partners[i] == i) continue;
    bool is_body = false;
    const SourceToken* const name = opener(tokens, partners, i, is_body);
    const bool describes = name != nullptr && (name->is("ampcheck_plugin_v1") || name->is("main"));
    const auto holder = std::find_if(bodies.rbegin(), bodies.rend(),
                                     [](const Body& body) { return body.kind == Body::Kind::description; });
    Body body{around, i};
    if (around == Body::Kind::description)
      body.kind = is_body && registers_kernel(tokens, partners, holder->begins, i) ? Body::Kind::code : around;
    else if (is_body && around == Body::Kind::other) {
      const std::size_t close = i > 0 && tokens[i - 1].is(")") ? partners[i - 1] : 0;
      const bool op = close > 0 && tokens[close - 1].is("AMPCHECK_OP");
      body.kind = describes || op ? Body::Kind::description : Body::Kind::code;
    }
    bodies.push_back(body);
  }
  return out;
}

}  // namespace ampcheck::tools
