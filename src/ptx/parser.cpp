// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <optional>
#include <tuple>

#include "src/ptx/lexer.h"
#include "src/ptx/literals.h"
#include "src/ptx/text.h"

namespace ampcheck::ptx {

namespace {

constexpr int kOldest = 30, kNewest = 99;  ///< versions: before 3.0 functions had no .param ABI
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 31;
constexpr std::size_t kMostRegisters = 1 << 18;

class Parser {
  using Where = std::tuple<int, int, int>;  ///< file, line, column
 public:
  Parser(std::string_view text, const std::string& path) : tokens_(tokens_of(text, path)) { module_.path = path; }

  Module all() {
    while (now().kind != Token::Kind::end) top();
    if (module_.version == 0) fail_here("got a text without .version, want PTX");
    return std::move(module_);
  }

 private:
  const Token& now(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  [[noreturn]] void fail_here(const std::string& what) const { fail(module_.path, now().line, what); }
  std::string shown() const {
    return now().kind == Token::Kind::end ? "the end" : "'" + std::string(now().text.substr(0, 60)) + "'";
  }
  bool is(std::string_view mark) const { return now().kind == Token::Kind::mark && now().text == mark; }
  bool take(std::string_view mark) {
    if (!is(mark)) return false;
    ++at_;
    return true;
  }
  void want(std::string_view mark) {
    if (!take(mark)) fail_here("got " + shown() + ", want '" + std::string(mark) + "'");
  }
  std::string word(const char* what) {
    if (now().kind != Token::Kind::word) fail_here("got " + shown() + ", want " + what);
    return std::string(tokens_[at_++].text);
  }
  bool take_word(std::string_view text) {
    if (now().kind != Token::Kind::word || now().text != text) return false;
    ++at_;
    return true;
  }

  std::int64_t integer() {
    const bool minus = take("-");
    if (now().kind != Token::Kind::number) fail_here("got " + shown() + ", want a whole number");
    const Operand out = number();
    if (out.kind != Operand::Kind::integer) fail_here("got a float, want a whole number");
    return minus ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(out.number)) : out.number;
  }

  Operand number() {
    Operand out;
    if (const std::string why = read_number(now().text, out); !why.empty())
      fail_here("got " + shown() + ", want " + why);
    ++at_;
    return out;
  }

  // ---- the module ----

  void top() {
    if (now().kind != Token::Kind::word) {
      if (is("@")) fail_here("got old debugging lines, want .loc and .file");
      fail_here("got " + shown() + ", want a directive such as .entry");
    }
    const std::string_view text = now().text;
    if (text == ".version") return version();
    if (module_.version == 0) fail_here("got " + shown() + " before .version, want PTX");
    if (text == ".target") return target();
    if (text == ".address_size") {
      ++at_;
      if (integer() != 64) fail_here("got 32-bit addresses, want .address_size 64");
    } else if (text == ".file") {
      file();
    } else if (text == ".section") {
      section();
    } else if (text == ".pragma" || text == ".alias") {
      while (!take(";")) skip_one();
    } else {
      declaration();
    }
  }

  void skip_one() {
    if (now().kind == Token::Kind::end) fail_here("got the end of the text inside a directive");
    ++at_;
  }

  void version() {
    ++at_;
    const std::string text = now().kind == Token::Kind::number ? std::string(now().text) : "";
    const std::size_t dot = text.find('.');
    int major = 0, minor = 0;
    if (dot != std::string::npos) {
      std::from_chars(text.data(), text.data() + dot, major);
      std::from_chars(text.data() + dot + 1, text.data() + text.size(), minor);
    }
    const int all = std::min(major, 1000) * 10 + std::min(minor, 9);
    if (all < kOldest || all > kNewest) fail_here("got .version " + shown() + ", want 3.0 to 9.9");
    module_.version = all;
    ++at_;
  }

  void target() {
    ++at_;
    module_.target = word("a target such as sm_90");
    if (!module_.target.starts_with("sm_")) fail_here("got target '" + module_.target + "', want sm_50 or later");
    while (take(",")) word("an option of the target");
  }

  void file() {
    ++at_;
    const auto index = static_cast<int>(integer());
    if (now().kind != Token::Kind::text) fail_here("got " + shown() + ", want the name of a file");
    std::string_view path = tokens_[at_++].text;
    if (now().kind == Token::Kind::text) path = tokens_[at_++].text;       // folder and name
    module_.files[index] = std::string(path.substr(path.rfind('/') + 1));  // rfind gives npos: 0
    while (take(",")) integer();
  }

  void section() {
    ++at_;
    while (!is("{")) skip_one();
    int depth = 0;
    do {
      if (is("{")) ++depth;
      if (is("}")) --depth;
      skip_one();
    } while (depth > 0);
  }

  void declaration() {
    bool external = false;
    while (take_word(".visible") || take_word(".weak") || take_word(".common") || now().text == ".extern") {
      external = external || now().text == ".extern";
      if (now().text == ".extern") ++at_;
    }
    const std::string_view text = now().text;
    if (text == ".entry" || text == ".func") return function();
    const auto space = space_of(text);
    if (!space || *space == Space::param) fail_here("got " + shown() + ", want a directive such as .entry or .global");
    ++at_;
    for (Variable& variable : variables(*space)) {
      if (external && *space != Space::shared)
        fail_here("got the external variable '" + variable.name + "', which another module defines, want one text");
      module_.variables.push_back(std::move(variable));
    }
  }

  static std::optional<Space> space_of(std::string_view text) {
    if (text == ".global") return Space::global;
    if (text == ".shared" || text == ".shared::cta") return Space::shared;
    if (text == ".local") return Space::local;
    if (text == ".const") return Space::constant;
    if (text == ".param") return Space::param;
    return {};
  }

  /// Behind the space: type and names, with sizes and values, up to and with the semicolon.
  std::vector<Variable> variables(Space space) {
    std::vector<Variable> out;
    std::uint32_t align = 0;
    const std::uint64_t unit = unit_type(align);
    do {
      out.push_back(declarator(space, unit, align));
      if (take("=")) initialise(out.back(), unit);
    } while (take(","));
    want(";");
    return out;
  }

  /// The bytes of the type that stands here, and the alignment before or behind it.
  std::uint64_t unit_type(std::uint32_t& align) {
    std::uint64_t lanes = 1, bytes = 0;
    while (now().kind == Token::Kind::word && now().text[0] == '.') {
      const std::string_view text = now().text;
      ++at_;
      if (text == ".align") {
        const std::int64_t value = integer();
        if (value < 1 || value > 1024 || (value & (value - 1)) != 0)
          fail_here("got an alignment that is no power of 2");
        align = static_cast<std::uint32_t>(value);
      } else if (text == ".v2" || text == ".v4") {
        lanes = text == ".v2" ? 2 : 4;
      } else if (const auto type = type_of(text); type && type->kind != 'p') {
        bytes = static_cast<std::uint64_t>(type->bits) / 8;
      } else if (text != ".ptr" && !space_of(text) && text != ".attribute") {
        fail_here("got '" + std::string(text) + "', want a type such as .f32");
      }
    }
    if (bytes == 0) fail_here("got " + shown() + ", want a type such as .f32");
    if (align == 0) align = static_cast<std::uint32_t>(bytes * lanes);
    return bytes * lanes;
  }

  Variable declarator(Space space, std::uint64_t unit, std::uint32_t align) {
    Variable out;
    out.space = space;
    out.align = align;
    out.name = word("the name of a variable");
    out.bytes = unit;
    bool open = false;
    while (take("[")) {
      if (take("]")) {
        open = true;
        continue;
      }
      const std::int64_t count = integer();
      if (count < 0 || static_cast<std::uint64_t>(count) > kMostBytes / std::max<std::uint64_t>(out.bytes, 1))
        fail_here("got an array of more than 2 GiB");
      out.bytes *= static_cast<std::uint64_t>(count);
      want("]");
    }
    if (open) out.bytes = 0;
    return out;
  }

  void initialise(Variable& variable, std::uint64_t unit) {
    if (take("{")) {
      while (!take("}")) {
        initialise(variable, unit);
        if (!is("}")) want(",");
      }
      return;
    }
    const std::uint64_t at = variable.initial.size();
    if (at + unit > kMostBytes) fail_here("got too many values");
    std::uint64_t bits = 0;
    if (now().kind == Token::Kind::word) {
      std::string name = word("a name");
      const bool generic = name == "generic" && take("(");
      if (generic) name = word("a name");
      Variable::Address address{at, name, 0};
      if (take("+")) address.plus = integer();
      if (generic) want(")");
      variable.addresses.push_back(std::move(address));
    } else {
      const bool minus = take("-");
      if (now().kind != Token::Kind::number) fail_here("got " + shown() + ", want a value");
      const Operand value = number();
      bits = static_cast<std::uint64_t>(value.number);
      if (value.kind == Operand::Kind::real && unit == 4)
        bits = std::bit_cast<std::uint32_t>(static_cast<float>(value.real));
      if (minus)
        bits = value.kind == Operand::Kind::real ? bits ^ (unit == 4 ? 0x80000000u : std::uint64_t{1} << 63) : 0 - bits;
    }
    for (std::uint64_t i = 0; i < unit; ++i)
      variable.initial.push_back(i < 8 ? static_cast<std::uint8_t>(bits >> (8 * i)) : std::uint8_t{0});
    if (variable.bytes != 0 && variable.initial.size() > variable.bytes)
      fail_here("got more values than the array has");
    if (variable.bytes == 0) variable.bytes = unit;
  }

  // ---- functions ----

  std::vector<Variable> parameters() {
    std::vector<Variable> out;
    want("(");
    while (!take(")")) {
      if (now().text == ".reg") fail_here("got a parameter in a register, want .param");
      if (!take_word(".param")) fail_here("got " + shown() + ", want .param");
      std::uint32_t align = 0;
      const std::uint64_t unit = unit_type(align);
      out.push_back(declarator(Space::param, unit, align));
      if (!is(")")) want(",");
    }
    return out;
  }

  void function() {
    Function out;
    out.line = now().line;
    out.entry = word("a function") == ".entry";
    if (is("(")) out.returns = parameters();
    out.name = word("the name of a function");
    if (is("(")) out.params = parameters();
    while (!is("{") && !is(";")) {
      if (now().text.find("cluster") != std::string_view::npos)
        fail_here("got a cluster of blocks (" + std::string(now().text) + "), which device ptx does not run");
      skip_one();
    }
    if (!take(";")) {
      out.defined = true;
      body(out);
    }
    for (Function& known : module_.functions)
      if (known.name == out.name) {
        if (out.defined) known = std::move(out);
        return;
      }
    module_.functions.push_back(std::move(out));
  }

  void body(Function& function) {
    function_ = &function;
    scopes_ = {{0, {}}};
    parents_ = {-1};
    statement_scopes_.clear();
    place_ = -1;
    want("{");
    while (!scopes_.empty()) {
      if (now().kind == Token::Kind::end) fail_here("got the end of the text in the function '" + function.name + "'");
      if (take("}")) {
        scopes_.pop_back();
      } else if (take("{")) {
        const auto id = static_cast<int>(parents_.size());
        parents_.push_back(scopes_.back().id);
        scopes_.push_back({id, {}});
      } else {
        line();
      }
    }
    resolve_labels(function);
    function_ = nullptr;
  }

  void line() {
    if (now().kind == Token::Kind::word && now(1).kind == Token::Kind::mark && now(1).text == ":") return label();
    if (now().kind == Token::Kind::word && now().text[0] == '.') return directive();
    if (take(";")) return;
    statement();
  }

  void label() {
    std::string name = word("a label");
    want(":");
    if (now().text == ".branchtargets" || now().text == ".calltargets" || now().text == ".callprototype") {
      const bool prototype = now().text == ".callprototype";
      ++at_;
      std::vector<std::string>& table = function_->tables[name];
      while (!take(";")) {
        if (now().kind == Token::Kind::word && !prototype) table.emplace_back(now().text);
        skip_one();
      }
      return;
    }
    const int scope = scopes_.back().id;
    if (scope != 0) name += "#" + std::to_string(scope);
    if (!function_->labels.emplace(name, static_cast<std::uint32_t>(function_->body.size())).second)
      fail_here("got the label '" + name + "' twice");
  }

  void directive() {
    const std::string_view text = now().text;
    if (text == ".loc") return location();
    if (text == ".reg") return registers();
    if (text == ".pragma") {
      while (!take(";")) skip_one();
      return;
    }
    const auto space = space_of(text);
    if (!space) fail_here("got " + shown() + ", want an instruction or a declaration");
    ++at_;
    for (Variable& variable : variables(*space)) {
      variable.name = declare(variable.name);
      function_->variables.push_back(std::move(variable));
    }
  }

  /// The unique name of something that the innermost scope declares.
  std::string declare(const std::string& name) {
    std::string unique = scopes_.size() > 1 ? name + "#" + std::to_string(scopes_.back().id) : name;
    scopes_.back().names[name] = unique;
    return unique;
  }
  std::string resolved(const std::string& name) const {
    for (std::size_t i = scopes_.size(); i-- > 0;)
      if (const auto found = scopes_[i].names.find(name); found != scopes_[i].names.end()) return found->second;
    return name;
  }

  void registers() {
    ++at_;
    const auto type = type_of(now().text);
    if (!type) fail_here("got " + shown() + ", want the type of a register");
    if (type->bits == 128) fail_here("got a register of 128 bits, which device ptx does not run");
    ++at_;
    do {
      const std::string name = word("the name of a register");
      std::int64_t count = -1;
      if (take("<")) {
        count = integer();
        want(">");
      }
      if (count > static_cast<std::int64_t>(kMostRegisters)) fail_here("got too many registers");
      if (count < 0) add_register(name, *type);
      for (std::int64_t i = 0; i < count; ++i) add_register(name + std::to_string(i), *type);
    } while (take(","));
    want(";");
  }

  void add_register(const std::string& name, Register type) {
    if (function_->registers.size() > kMostRegisters) fail_here("got too many registers");
    function_->register_index[declare(name)] = static_cast<std::uint32_t>(function_->registers.size());
    function_->registers.push_back(type);
  }

  /// .loc file line column [, function_name label [+ n], inlined_at file line column]. The place inlined_at may be one
  /// of a function that is inlined itself: then it was said before.
  void location() {
    ++at_;
    const auto read = [&] {
      const int file = static_cast<int>(integer()), line = static_cast<int>(integer());
      return Where(file, line, static_cast<int>(integer()));
    };
    const Where own = read();
    while (take(",")) {
      const std::string what = word("function_name or inlined_at");
      if (what == "inlined_at") {
        if (const Where caller = read(); caller != own) callers_[own] = caller;
      } else {
        word("a label");
        if (take("+")) integer();
      }
    }
    const auto [file, line, column] = line_of_kernel_file(own);
    if (line != 0) place_ = place_index({file, line});  // line 0 is the compiler's own code
  }

  /// The innermost place in the file of the kernel: a function of that file that is inlined is the user's own code, one
  /// of a header is shown where it is called.
  Where line_of_kernel_file(const Where& own) const {
    constexpr int kMostCalls = 64;
    std::vector<Where> calls = {own};
    for (auto up = callers_.find(own); up != callers_.end() && std::ssize(calls) < kMostCalls;
         up = callers_.find(calls.back()))
      calls.push_back(up->second);
    const int file = std::get<0>(calls.back());
    return *std::find_if(calls.begin(), calls.end(), [&](const Where& each) { return std::get<0>(each) == file; });
  }

  int place_index(const Place& place) {
    const auto [known, fresh] = place_indices_.emplace(std::pair(place.file, place.line), module_.places.size());
    if (fresh) module_.places.push_back(place);
    return static_cast<int>(known->second);
  }

  void statement() {
    Statement out;
    out.line = now().line;
    out.place = place_ >= 0 ? place_ : place_index({0, out.line});
    if (take("@")) {
      out.guard_negated = take("!");
      out.guard = resolved(word("a predicate"));
    }
    const std::string all = word("an instruction");
    for (std::size_t start = 0; start <= all.size();) {
      const std::size_t end = std::min(all.find('.', start), all.size());
      out.words.push_back(all.substr(start, end - start));
      start = end + 1;
    }
    if (out.words.front().empty()) fail_here("got '" + all + "', want an instruction");
    while (!is(";")) {
      out.operands.push_back(operand(0));
      if (!is(";")) want(",");
    }
    want(";");
    function_->body.push_back(std::move(out));
    statement_scopes_.push_back(scopes_.back().id);
  }

  Operand operand(int depth) {
    if (depth > 4) fail_here("got operands nested too deeply");
    Operand out;
    if (take("[")) {
      out = address();
    } else if (is("{") || is("(")) {
      const std::string_view end = take("{") ? "}" : (++at_, ")");
      out.kind = Operand::Kind::list;
      while (!take(end)) {
        out.parts.push_back(operand(depth + 1));
        if (!is(end)) want(",");
      }
    } else if (take("!")) {
      out.name = resolved(word("a predicate"));
      out.negated = true;
    } else if (is("-") || now().kind == Token::Kind::number) {
      out = literal();
    } else {
      out = named();
    }
    if (!take("|")) return out;
    Operand pair;
    pair.kind = Operand::Kind::ored;
    pair.parts = {std::move(out), operand(depth + 1)};
    return pair;
  }

  Operand literal() {
    const bool minus = take("-");
    if (now().kind != Token::Kind::number) fail_here("got " + shown() + ", want a number");
    Operand out = number();
    if (!minus) return out;
    out.real = -out.real;
    out.number = out.kind == Operand::Kind::real
                     ? std::bit_cast<std::int64_t>(out.real)
                     : static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(out.number));
    return out;
  }

  Operand named() {
    Operand out;
    out.name = resolved(word("an operand"));
    if (out.name == "_") out.kind = Operand::Kind::sink;
    if (take("+")) out.number = integer();
    return out;
  }

  Operand address() {
    Operand out;
    out.kind = Operand::Kind::address;
    if (is("-") || now().kind == Token::Kind::number) {
      out.number = integer();
    } else {
      out.name = resolved(word("an address"));
      if (take("+"))
        out.number = integer();
      else if (is("-"))
        out.number = integer();
    }
    if (is(","))
      fail_here("got an address of several parts (a tensor map or a texture), which device ptx does not run");
    want("]");
    return out;
  }

  /// Labels may be declared behind the branch to them, in the scope of the branch or around it.
  void resolve_labels(Function& function) {
    const auto unique = [&](const std::string& name, int scope) {
      for (; scope > 0; scope = parents_[static_cast<std::size_t>(scope)])
        if (const std::string inner = name + "#" + std::to_string(scope); function.labels.contains(inner)) return inner;
      return name;
    };
    for (std::size_t i = 0; i < function.body.size(); ++i) {
      Statement& statement = function.body[i];
      if (statement.words.front() != "bra" || statement.operands.empty()) continue;
      statement.operands.front().name = unique(statement.operands.front().name, statement_scopes_[i]);
    }
  }

  struct Scope {
    int id;
    std::map<std::string, std::string> names;
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Module module_;
  Function* function_ = nullptr;
  std::vector<Scope> scopes_;
  std::vector<int> parents_, statement_scopes_;
  int place_ = -1;
  std::map<std::pair<int, int>, std::size_t> place_indices_;
  std::map<Where, Where> callers_;  ///< of inlined places, the next one out
};

}  // namespace

std::string Statement::text() const {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ".") + word;
  return out;
}

const Function* Module::function(std::string_view name) const {
  for (const Function& known : functions)
    if (known.name == name) return &known;
  return nullptr;
}

std::string Module::place_text(int place) const {
  const Place& at = places.at(static_cast<std::size_t>(place));
  const auto file = files.find(at.file);
  return (file == files.end() ? path.substr(path.rfind('/') + 1) : file->second) + ":" + std::to_string(at.line);
}

Module parse(std::string_view text, const std::string& path) { return Parser(text, path).all(); }

}  // namespace ampcheck::ptx
