// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/text/formula_parse.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ampcheck::reference {

namespace {

// The locale never decides what a letter is.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

struct Token {
  enum class Kind { number, name, symbol, end_of_statement, end } kind = Kind::end;
  std::string text;
  std::size_t at = 0;
};

bool is_symbol(const Token& token, std::string_view text) {
  return token.kind == Token::Kind::symbol && token.text == text;
}

/// Cuts the text into tokens.
class Lexer {
 public:
  explicit Lexer(const ParsedFormula& formula) : formula_(formula), text_(formula.text) {}

  std::vector<Token> run() {
    while (skip_blanks(), at_ < text_.size()) next();
    add(Token::Kind::end, "", text_.size());
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text, std::size_t at) { tokens_.push_back({kind, std::move(text), at}); }

  /// Blanks, comments, and newlines, of which some end a statement.
  void skip_blanks() {
    bool newline = false;
    const std::size_t start = at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (at_ == text_.size()) break;
      if (text_[at_] == '\n')
        newline = true;
      else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r')
        break;
    }
    if (newline && depth_ == 0 && !tokens_.empty() && !waits(tokens_.back()) && !continues())
      add(Token::Kind::end_of_statement, "\n", start);
  }

  /// The statement cannot end after this token.
  static bool waits(const Token& last) {
    return (last.kind == Token::Kind::symbol && last.text != ")") || last.kind == Token::Kind::end_of_statement ||
           (last.kind == Token::Kind::name && last.text == "with");
  }
  /// What comes next cannot begin a statement.
  bool continues() const {
    const std::string_view rest = text_.substr(at_);
    return !rest.empty() &&
           (std::string_view("+-*/@<>=,^)").find(rest.front()) != std::string_view::npos ||
            (rest.starts_with("with") && (rest.size() == 4 || !(is_letter(rest[4]) || is_digit(rest[4])))));
  }

  void next() {
    const char c = text_[at_];
    const std::size_t start = at_;
    if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      return add(Token::Kind::name, std::string(text_.substr(start, at_ - start)), start);
    }
    if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) return number();
    if (c == ';') {
      ++at_;
      return add(Token::Kind::end_of_statement, ";", start);
    }
    for (const std::string_view symbol : {"<=", ">=", "=="})
      if (text_.substr(at_, 2) == symbol) {
        at_ += 2;
        return add(Token::Kind::symbol, std::string(symbol), start);
      }
    if (text_.substr(at_, 2) == "**") {
      at_ += 2;
      return add(Token::Kind::symbol, "^", start);
    }
    if (std::string_view("+-*/@^()<>=,").find(c) == std::string_view::npos)
      formula_.fail(start, "got " + shown(c) + ", want a name, a number or an operator");
    depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
    ++at_;
    add(Token::Kind::symbol, std::string(1, c), start);
  }

  static std::string shown(char c) {
    return c >= 0x20 && c < 0x7f ? "'" + std::string(1, c) + "'" : std::string("a character that is not ASCII");
  }

  void number() {
    const std::size_t start = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    };
    digits();
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (at_ == text_.size() || !is_digit(text_[at_]))
        formula_.fail(start, "got a number without digits in its exponent");
      digits();
    }
    if (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.'))
      formula_.fail(at_, "got '" + std::string(1, text_[at_]) + "' after a number, want an operator");
    add(Token::Kind::number, std::string(text_.substr(start, at_ - start)), start);
  }

  const ParsedFormula& formula_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<Token> tokens_;
};

/// Recursive descent over the tokens.
class Parser {
 public:
  explicit Parser(ParsedFormula& formula) : formula_(formula), tokens_(Lexer(formula).run()) {}

  void run() {
    for (;;) {
      while (peek().kind == Token::Kind::end_of_statement) ++at_;
      if (peek().kind == Token::Kind::end) return;
      statement();
      if (peek().kind != Token::Kind::end && peek().kind != Token::Kind::end_of_statement)
        fail_here("an operator, ';' or the end of the line");
    }
  }

 private:
  using Kind = FormulaTerm::Kind;

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool take(std::string_view symbol) { return is_symbol(peek(), symbol) && (++at_, true); }

  [[noreturn]] void fail_here(const std::string& want) const {
    const Token& token = peek();
    const std::string got = token.kind == Token::Kind::end ? "the end of the formula"
                            : token.kind == Token::Kind::end_of_statement
                                ? (token.text == ";" ? "';'" : "the end of the line")
                                : "'" + token.text + "'";
    formula_.fail(token.at, "got " + got + ", want " + want);
  }

  void expect(std::string_view symbol, const std::string& want) {
    if (!take(symbol)) fail_here(want);
  }

  std::string name(const std::string& want) {
    if (peek().kind != Token::Kind::name) fail_here(want);
    return tokens_[at_++].text;
  }

  void statement() {
    FormulaStatement out;
    out.at = peek().at;
    out.target = name("a statement, as y = x + 1");
    expect("=", "'=' after '" + out.target + "'");
    out.value = expression();
    if (peek().kind == Token::Kind::name && peek().text == "with") {
      ++at_;
      do out.adjoints.push_back(adjoint());
      while (take(","));
    }
    formula_.statements.push_back(std::move(out));
  }

  FormulaAdjoint adjoint() {
    FormulaAdjoint out;
    out.at = peek().at;
    out.of = name("a gradient, as dx = ...");
    if (out.of.size() < 2 || out.of.front() != 'd')
      formula_.fail(out.at, "got '" + out.of + "', want a gradient, as dx = ...");
    out.of.erase(0, 1);
    expect("=", "'=' after 'd" + out.of + "'");
    out.value = expression();
    return out;
  }

  int add(FormulaTerm term) {
    for (const int arg : term.args) term.depth = std::max(term.depth, formula_.term(arg).depth + 1);
    for (const auto& [key, arg] : term.keywords) term.depth = std::max(term.depth, formula_.term(arg).depth + 1);
    if (term.depth > kMaxFormulaDepth)
      formula_.fail(term.at, "got an expression nested deeper than " + std::to_string(kMaxFormulaDepth) +
                                 ", want it in several statements");
    if (formula_.terms.size() == kMaxFormulaTerms)
      formula_.fail(term.at, "got more than " + std::to_string(kMaxFormulaTerms) + " terms");
    formula_.terms.push_back(std::move(term));
    return static_cast<int>(formula_.terms.size()) - 1;
  }

  /// Counts nesting of brackets and signs, which recurse.
  struct Nested {
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxFormulaDepth)
        parser_.formula_.fail(parser_.peek().at, "got brackets nested deeper than " + std::to_string(kMaxFormulaDepth));
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser& parser_;
  };

  int binary(const Token& op, int left, int right) {
    return add({.kind = Kind::binary, .text = op.text, .args = {left, right}, .at = op.at});
  }

  int expression() {
    const Nested nested(*this);
    const int left = sum();
    for (const char* op : {"<=", ">=", "==", "<", ">"})
      if (is_symbol(peek(), op)) {
        const Token token = tokens_[at_++];
        return binary(token, left, sum());
      }
    return left;
  }

  int sum() {
    int left = product();
    while (is_symbol(peek(), "+") || is_symbol(peek(), "-")) {
      const Token token = tokens_[at_++];
      left = binary(token, left, product());
    }
    return left;
  }

  int product() {
    int left = factor();
    while (is_symbol(peek(), "*") || is_symbol(peek(), "/") || is_symbol(peek(), "@")) {
      const Token token = tokens_[at_++];
      left = binary(token, left, factor());
    }
    return left;
  }

  int factor() {
    const Nested nested(*this);
    if (is_symbol(peek(), "-")) {
      const std::size_t at = tokens_[at_++].at;
      return add({.kind = Kind::negate, .text = "-", .args = {factor()}, .at = at});
    }
    const int base = atom();
    if (!is_symbol(peek(), "^")) return base;
    const Token token = tokens_[at_++];
    if (peek().kind != Token::Kind::number || peek().text != "2")
      fail_here("2 after '^' (other powers by pow(x, exponent))");
    ++at_;
    return add({.kind = Kind::binary, .text = "^", .args = {base}, .at = token.at});
  }

  int atom() {
    const Token token = peek();
    if (token.kind == Token::Kind::number) {
      ++at_;
      return add({.kind = Kind::number, .text = token.text, .at = token.at});
    }
    if (token.kind == Token::Kind::name && token.text != "with") {
      ++at_;
      return take("(") ? call(token) : add({.kind = Kind::name, .text = token.text, .at = token.at});
    }
    if (!take("(")) fail_here("a value");
    const int inner = expression();
    expect(")", "')' for the '(' before");
    return inner;
  }

  int call(const Token& function) {
    FormulaTerm term{.kind = Kind::call, .text = function.text, .at = function.at};
    if (!take(")")) {
      do {
        if (peek().kind == Token::Kind::name && is_symbol(peek(1), "=")) {
          const std::string key = name("");
          ++at_;
          term.keywords.emplace_back(key, expression());
        } else {
          term.args.push_back(expression());
        }
      } while (take(","));
      expect(")", "',' or ')' in the arguments of " + function.text);
    }
    return add(std::move(term));
  }

  ParsedFormula& formula_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

void ParsedFormula::fail(std::size_t at, const std::string& what) const {
  constexpr std::size_t kShown = 100;  // of a long line, what stands around the column
  at = std::min(at, text.size());
  const std::size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  const std::size_t start = before == std::string::npos ? 0 : before + 1,
                    end = std::min(text.find('\n', at), text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(start), '\n');
  // Columns count characters, not the bytes of UTF-8.
  const auto characters = [&](std::size_t from, std::size_t to) {
    return std::count_if(text.begin() + static_cast<std::ptrdiff_t>(from),
                         text.begin() + static_cast<std::ptrdiff_t>(to),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  };
  const std::size_t from = at - start > kShown / 2 ? at - kShown / 2 : start;
  std::string excerpt = text.substr(from, std::min(end - from, kShown));
  for (char& c : excerpt)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  throw FormulaError("[formula] line " + std::to_string(line) + ", column " +
                     std::to_string(characters(start, at) + 1) + ": " + what + "\n  " + excerpt + "\n  " +
                     std::string(static_cast<std::size_t>(characters(from, at)), ' ') + "^");
}

ParsedFormula parse_formula(std::string text) {
  ParsedFormula out{std::move(text)};
  if (out.text.size() > kMaxFormulaLength)
    throw FormulaError("[formula] got " + std::to_string(out.text.size()) + " characters, want at most " +
                       std::to_string(kMaxFormulaLength));
  Parser(out).run();
  if (out.statements.empty()) out.fail(0, "got no statement, want one such as y = x + 1");
  return out;
}

}  // namespace ampcheck::reference
