// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/mutate/mutants.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "tools/mutate/source_tokens.h"

namespace ampcheck::tools {

namespace {

using Token = SourceToken;

template <std::size_t N>
bool any_of(const Token& token, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), token.text) != words.end();
}

constexpr std::array<std::string_view, 14> kTypes = {"float",   "double", "int",   "unsigned", "long",
                                                     "short",   "char",   "bool",  "void",     "size_t",
                                                     "int64_t", "auto",   "const", "typename"};
/// With what a statement begins that is no expression, or that nothing would replace.
constexpr std::array<std::string_view, 20> kNoExpression = {
    "return", "if",     "for",   "while",     "do",     "switch",        "case",  "break",   "continue", "goto",
    "throw",  "delete", "const", "constexpr", "static", "static_assert", "using", "typedef", "else",     "auto"};
constexpr std::array<std::string_view, 7> kAssigns = {"=", "+=", "-=", "*=", "/=", "%=", "^="};

/// Finds the mutants of one source.
class Finder {
 public:
  Finder(std::string_view source, std::string_view low_type)
      : source_(source),
        low_type_(low_type),
        tokens_(tokens_of(source)),
        partners_(partners_of(tokens_)),
        runs_(kernel_code(tokens_, partners_)) {}

  std::vector<Mutant> all() {
    mark_bounds();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!runs_[i]) continue;
      operation(i);
      constant(i);
      index(i);
      precision(i);
      statement(i);
    }
    std::stable_sort(out_.begin(), out_.end(), [](const Mutant& a, const Mutant& b) {
      return std::pair(a.offset, a.size) < std::pair(b.offset, b.size);
    });
    return std::move(out_);
  }

 private:
  const Token& at(std::size_t i) const {
    static const Token kNone;
    return i < tokens_.size() ? tokens_[i] : kNone;
  }
  const Token& before(std::size_t i) const { return i == 0 ? at(tokens_.size()) : at(i - 1); }

  void add(Mutant::Kind kind, std::size_t offset, std::size_t size, std::string by) {
    const std::string_view head = source_.substr(0, offset);
    const std::size_t line_start = head.rfind('\n') == std::string_view::npos ? 0 : head.rfind('\n') + 1;
    out_.push_back({kind, offset, size, std::move(by), static_cast<int>(std::count(head.begin(), head.end(), '\n')) + 1,
                    static_cast<int>(offset - line_start) + 1});
  }
  void replace(Mutant::Kind kind, const Token& token, std::string_view by) {
    add(kind, token.offset, token.text.size(), std::string(by));
  }

  /// Whether a value ends with the token: what follows is an operator of two operands.
  static bool ends_value(const Token& token) {
    return (token.kind == Token::Kind::word && !any_of(token, kTypes) && !token.is("return") && !token.is("case")) ||
           token.kind == Token::Kind::number || token.is(")") || token.is("]");
  }

  /// Whether '<' opens arguments of a template.
  bool opens_template(std::size_t i) const {
    if (at(i - 1).kind != Token::Kind::word) return false;
    int depth = 0;
    for (std::size_t k = i; k < tokens_.size() && k < i + 24; ++k) {
      const Token& t = at(k);
      if (t.is("<")) ++depth;
      if (t.is(">")) --depth;
      if (t.is(">>")) depth -= 2;
      if (depth <= 0) {
        const Token& next = at(k + 1);
        return next.is("(") || next.is("::") || next.is("{") || next.is(">") || next.is(",") || next.is(")") ||
               next.kind == Token::Kind::word;
      }
      for (const std::string_view no : {";", "{", "}", "(", ")", "&&", "||", "=", "+", "-"})
        if (t.is(no)) return false;
    }
    return false;
  }
  /// Whether '>' closes such arguments: its '<' opens them.
  bool closes_template(std::size_t i) const {
    int depth = 0;
    for (std::size_t k = i + 1; k-- > 0 && k + 24 > i;) {
      if (at(k).is(">")) ++depth;
      if (at(k).is(">>")) depth += 2;
      if (at(k).is("<") && --depth <= 0) return opens_template(k);
      if (at(k).is(";") || at(k).is("{")) return false;
    }
    return false;
  }

  /// '*' or '&' of a pointer or reference that is declared.
  bool declares(std::size_t i) const {
    const Token &left = before(i), &right = at(i + 1);
    return any_of(left, kTypes) || left.is(">") || right.is("const") || right.is(")") || right.is(",") ||
           right.is("__restrict__") ||
           (left.kind == Token::Kind::word && right.kind == Token::Kind::word &&
            (at(i + 2).is("=") || at(i + 2).is(";")) && !ends_value(i < 2 ? Token() : at(i - 2)) &&
            statement_begins(i - 1));
  }
  /// Whether a statement begins at the token.
  bool statement_begins(std::size_t i) const {
    const Token& left = before(i);
    return left.is(";") || left.is("{") || left.is("}") || left.is("else") || left.is("do") || head_ends(i);
  }
  /// Whether the token follows the head of a for, if or while.
  bool head_ends(std::size_t i) const {
    if (!before(i).is(")")) return false;
    const std::size_t open = partners_[i - 1];
    return open > 0 && (at(open - 1).is("for") || at(open - 1).is("if") || at(open - 1).is("while"));
  }

  void operation(std::size_t i) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 20> kOther = {
        {{"+", "-"},   {"-", "+"},   {"*", "/"},   {"/", "*"},   {"%", "*"},   {"+=", "-="}, {"-=", "+="},
         {"*=", "/="}, {"/=", "*="}, {"<", "<="},  {"<=", "<"},  {">", ">="},  {">=", ">"},  {"==", "!="},
         {"!=", "=="}, {"&&", "||"}, {"||", "&&"}, {"<<", ">>"}, {">>", "<<"}, {"^", "|"}}};
    const Token& token = at(i);
    const auto known =
        std::find_if(kOther.begin(), kOther.end(), [&](const auto& pair) { return token.is(pair.first); });
    if (known == kOther.end()) {
      if (token.is("!") && !at(i + 1).is("=")) replace(Mutant::Kind::operation, token, "");
      return;
    }
    const bool sign = (token.is("-") || token.is("+")) && !ends_value(before(i));
    if (sign) {
      if (token.is("-")) replace(Mutant::Kind::operation, token, "");
      return;
    }
    if (token.is("*") && (!ends_value(before(i)) || declares(i))) return;
    if (token.is("<") && opens_template(i)) return;
    if ((token.is(">") || token.is(">>")) && closes_template(i)) return;
    if ((token.is("<<") || token.is(">>")) && (at(i + 1).is("<") || before(i).is(">"))) return;  // a launch
    replace(in_bound(i) ? Mutant::Kind::bound : Mutant::Kind::operation, token, known->second);
  }

  void constant(std::size_t i) {
    const Token& token = at(i);
    if (token.kind != Token::Kind::number || before(i).is("case")) return;
    const Mutant::Kind kind = in_bound(i)   ? Mutant::Kind::bound
                              : in_index(i) ? Mutant::Kind::index
                                            : Mutant::Kind::constant;
    const std::string_view text = token.text;
    const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    const bool real = text.find('.') != text.npos ||
                      (hexadecimal ? text.find_first_of("pP") : text.find_first_of("eE")) != text.npos ||
                      (!hexadecimal && text.find_first_of("fF") != text.npos);
    if (real) {
      const bool zero = text.find_first_of("123456789") == text.npos;
      const bool single = text.ends_with("f") || text.ends_with("F");
      const std::string suffix = single ? "f" : "";
      replace(kind, token, zero ? "1.0" + suffix : "(" + std::string(text) + " * 1.0078125" + suffix + ")");
      return;
    }
    replace(kind, token, next_number(text));
  }

  /// "8" of "7"; "(0x7u + 1)" of what is no plain decimal number.
  static std::string next_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool plain = error == std::errc() && end == text.data() + text.size() && (text == "0" || text[0] != '0') &&
                       value < 1'000'000'000;
    return plain ? std::to_string(value + 1) : "(" + std::string(text) + " + 1)";
  }

  /// x[i] becomes x[i + 1], and x(i, j) becomes x(j, i).
  void index(std::size_t i) {
    if (at(i).is("[") && ends_value(before(i)) && partners_[i] > i + 1)
      add(Mutant::Kind::index, at(partners_[i]).offset, 0, " + 1");
    if (at(i).is("(") && before(i).kind == Token::Kind::word && partners_[i] == i + 4 && at(i + 2).is(",") &&
        at(i + 1).kind == Token::Kind::word && at(i + 3).kind == Token::Kind::word &&
        at(i + 1).text != at(i + 3).text && !any_of(before(i), kNoExpression) && at(i + 1).text.size() <= 3 &&
        at(i + 3).text.size() <= 3)
      add(Mutant::Kind::index, at(i + 1).offset, at(i + 3).end() - at(i + 1).offset,
          std::string(at(i + 3).text) + ", " + std::string(at(i + 1).text));
  }

  /// The type of a variable.
  void precision(std::size_t i) {
    const bool single = at(i).is("float"), wide = at(i).is("double");
    if ((!single && !wide) || at(i + 1).kind != Token::Kind::word) return;
    const Token& next = at(i + 2);
    if (next.is("=") || next.is(";") || next.is(",") || next.is("{") || next.is("["))
      replace(Mutant::Kind::precision, at(i), wide ? "float" : low_type_);
  }

  /// Whether an expression may begin with the token, as a statement of its own.
  static bool begins_expression(const Token& token) {
    if (any_of(token, kNoExpression) || any_of(token, kTypes)) return false;
    return token.kind == Token::Kind::word || token.is("*") || token.is("(") || token.is("++") || token.is("--");
  }
  /// "Type name", "Type<T> name" or "Type* name" behind another word: a declaration.
  bool declares_name(std::size_t i) const {
    const Token& left = before(i);
    return at(i).kind == Token::Kind::word &&
           (left.kind == Token::Kind::word || left.is(">") || left.is("*") || left.is("&"));
  }

  /// An assignment or a call on its own is dropped.
  void statement(std::size_t i) {
    if (!statement_begins(i) || in_head(i) || !begins_expression(at(i))) return;
    bool assigns = false, declaration = false;
    std::size_t end = i;
    for (; end < tokens_.size() && !at(end).is(";"); ++end) {
      if (at(end).is("}")) return;
      assigns |= any_of(at(end), kAssigns);
      declaration |= !assigns && end > i && declares_name(end);
      end = std::max(end, partners_[end]);  // over ( ), [ ] and { }
    }
    if (end >= tokens_.size() || (declaration && !at(i).is("*"))) return;
    if (assigns || before(end).is(")") || before(end).is("++") || before(end).is("--"))
      add(Mutant::Kind::statement, at(i).offset, at(end).offset - at(i).offset, "");
  }

  /// Marks the heads of for loops: what of them is a bound.
  void mark_bounds() {
    bound_.assign(tokens_.size(), false);
    head_.assign(tokens_.size(), false);
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (!runs_[i] || !at(i).is("for") || !at(i + 1).is("(")) continue;
      const std::size_t close = partners_[i + 1];
      std::vector<std::size_t> parts;
      for (std::size_t k = i + 2; k < close; ++k) {
        head_[k] = true;
        if (at(k).is(";")) parts.push_back(k);
        if (at(k).is("(") || at(k).is("{")) {
          for (std::size_t inner = k; inner <= partners_[k]; ++inner) head_[inner] = true;
          k = std::max(k, partners_[k]);
        }
      }
      if (parts.size() != 2) continue;
      for (std::size_t k = i + 2; k < parts[1]; ++k) bound_[k] = true;
      for (std::size_t k = parts[0] + 1; k < parts[1]; ++k)
        if ((at(k).is("<") && !opens_template(k)) || at(k).is("<=")) {
          add(Mutant::Kind::bound, at(parts[1]).offset, 0, " - 1");
          break;
        }
    }
  }
  bool in_bound(std::size_t i) const { return bound_[i]; }
  bool in_head(std::size_t i) const { return head_[i]; }
  bool in_index(std::size_t i) const {
    for (std::size_t k = i; k-- > 0 && k + 16 > i;) {
      if (at(k).is(";") || at(k).is("{")) return false;
      if (at(k).is("[") && partners_[k] > i) return k > 0 && ends_value(before(k));
    }
    return false;
  }

  std::string_view source_;
  std::string low_type_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> partners_;
  std::vector<bool> runs_, bound_, head_;
  std::vector<Mutant> out_;
};

std::string marked(std::string_view lines, char mark) {
  std::string out;
  for (std::size_t at = 0; at <= lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    out += mark;
    out += ' ';
    out += lines.substr(at, end - at);
    out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace

const char* name(Mutant::Kind kind) {
  switch (kind) {
    case Mutant::Kind::bound: return "bound";
    case Mutant::Kind::constant: return "constant";
    case Mutant::Kind::index: return "index";
    case Mutant::Kind::operation: return "operator";
    case Mutant::Kind::precision: return "precision";
    case Mutant::Kind::statement: return "statement";
  }
  return "?";
}

std::string Mutant::applied(std::string_view source) const {
  return std::string(source.substr(0, offset)) + by + std::string(source.substr(offset + size));
}

std::string Mutant::diff(std::string_view source) const {
  const std::size_t before = source.substr(0, offset).rfind('\n');
  const std::size_t from = before == std::string_view::npos ? 0 : before + 1,
                    to = std::min(source.find('\n', offset + size), source.size());
  const std::string changed = std::string(source.substr(from, offset - from)) + by +
                              std::string(source.substr(offset + size, to - offset - size));
  return marked(source.substr(from, to - from), '-') + marked(changed, '+');
}

std::vector<Mutant> mutants_of(std::string_view source, std::string_view low_type) {
  return Finder(source, low_type).all();
}

std::vector<Mutant> spread(const std::vector<Mutant>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<Mutant> out;
  for (std::size_t i = 0; i < most; ++i) out.push_back(all[(2 * i + 1) * all.size() / (2 * most)]);
  return out;
}

}  // namespace ampcheck::tools
