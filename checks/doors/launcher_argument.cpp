// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/launcher_argument.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "src/arithmetic.h"
#include "src/op_call.h"
#include "src/suggestion.h"

namespace ampcheck::checks {

namespace {

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: up to here a double counts

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string meant(const std::string& word, const std::vector<std::string>& candidates) {
  return word.size() < 3 ? "" : did_you_mean(word, candidates);  // every short name is near to every other
}

std::string list_of(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::int64_t count_of(const ac_tensor* tensor) {
  if (tensor == nullptr) return 0;
  std::int64_t n = 1;
  for (int i = 0; i < tensor->dl.ndim; ++i) n *= tensor->dl.shape[i];
  return n;
}

}  // namespace

const ac_tensor* TensorSlot::of(const ac_call& call) const {
  const ac_tensor* const* const lists[] = {call.inputs,
                                           call.outputs,
                                           call.saved,
                                           call.cotangents,
                                           call.gradients,
                                           call.gradient_cotangents,
                                           call.cotangent_gradients};
  return lists[static_cast<std::size_t>(list)] == nullptr ? nullptr : lists[static_cast<std::size_t>(list)][index];
}

std::vector<std::string> ArgumentNames::all() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : tensors) out.push_back(name);
  for (const auto& [name, where] : dims) out.push_back(name);
  for (const auto& [name, index] : attributes) out.push_back(name);
  return out;
}

/// Arithmetic over extents, attributes and functions of tensors.
class ArgumentParser : public ArithmeticReader<ArgumentParser, ArgumentValue> {
 public:
  using Kind = ArgumentValue::Kind;

  ArgumentParser(const std::string& text, const ArgumentNames& names, std::size_t offset)
      : ArithmeticReader(text), names_(names), offset_(offset) {}

  [[noreturn]] void fail(std::size_t at, const std::string& what) const { throw ArgumentError(offset_ + at, what); }

  ArgumentValue leaf() {
    skip();
    if (at_ == text_.size() || !(is_digit(text_[at_]) || text_[at_] == '.')) return named();
    ArgumentValue out;
    out.number_ = number();
    return out;
  }

  static ArgumentValue negated(ArgumentValue a) {
    ArgumentValue out;
    out.kind_ = Kind::negate;
    out.args_.push_back(std::move(a));
    return out;
  }

  static ArgumentValue combine(char op, ArgumentValue a, ArgumentValue b) {
    ArgumentValue out;
    out.kind_ = op == '+' ? Kind::add : op == '-' ? Kind::subtract : op == '*' ? Kind::multiply : Kind::divide;
    out.args_.push_back(std::move(a));
    out.args_.push_back(std::move(b));
    return out;
  }

 private:
  double number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || !std::isfinite(value)) fail(at_, "got a number that cannot be read");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  ArgumentValue named() {
    const std::size_t start = (skip(), at_);
    const std::string name = word();
    if (name.empty()) fail(start, "got " + here() + ", want a name or a number");
    ArgumentValue out;
    out.name_ = name;
    if (take('(')) return function(name, start);
    if (names_.dims.contains(name))
      out.kind_ = Kind::dim;
    else if (names_.attributes.contains(name))
      out.kind_ = Kind::attribute;
    else if (name == "dtype") {
      out.kind_ = Kind::storage_code;
      require_codes(start);
    } else if (name == "workspace_bytes") {
      out.kind_ = Kind::workspace_bytes;
      out.name_ = "workspace";
    } else if (names_.tensors.contains(name))
      fail(start, "got the tensor '" + name + "' as a number, want a pointer (const void* " + name + ")");
    else
      fail(start,
           "got unknown name '" + name + "'" + meant(name, names_.all()) + ", want one of " + list_of(names_.all()));
    return out;
  }

  void require_codes(std::size_t at) const {
    if (names_.dtype_codes.empty())
      fail(at, "got dtype without codes, want a table such as dtypes = { fp32 = 0, bf16 = 1 }");
  }

  ArgumentValue function(const std::string& name, std::size_t start) {
    static const std::pair<const char*, Kind> kFunctions[] = {{"size", Kind::size},       {"stride", Kind::stride},
                                                              {"count", Kind::count},     {"bytes", Kind::bytes},
                                                              {"present", Kind::present}, {"dtype", Kind::dtype_code}};
    ArgumentValue out;
    std::vector<std::string> known;
    bool found = false;
    for (const auto& [word, kind] : kFunctions) {
      known.emplace_back(word);
      if (name == word) {
        out.kind_ = kind;
        found = true;
      }
    }
    if (!found)
      fail(start, "got unknown function '" + name + "'" + meant(name, known) + ", want one of " + list_of(known));
    if (out.kind_ == Kind::dtype_code) require_codes(start);
    const std::size_t at = (skip(), at_);
    out.name_ = word();
    if (out.kind_ == Kind::bytes && names_.workspaces.contains(out.name_)) {
      out.kind_ = Kind::workspace_bytes;
      want(')');
      return out;
    }
    std::vector<std::string> tensors;
    for (const auto& [tensor, slot] : names_.tensors) tensors.push_back(tensor);
    const auto slot = names_.tensors.find(out.name_);
    if (slot == names_.tensors.end())
      fail(at, "got '" + out.name_ + "'" + meant(out.name_, tensors) + ", want a tensor: " + list_of(tensors));
    out.slot_ = slot->second;
    if (out.kind_ == Kind::size || out.kind_ == Kind::stride) {
      want(',');
      skip();
      const bool from_end = take('-');
      const std::size_t axis_at = (skip(), at_);
      if (at_ == text_.size() || !is_digit(text_[at_])) fail(axis_at, "got no axis, want a whole number");
      const double axis = number();
      if (axis != std::floor(axis) || axis > 8) fail(axis_at, "got axis " + number_text(axis) + ", want -8 to 7");
      out.number_ = from_end ? -axis : axis;
    }
    want(')');
    return out;
  }

  const ArgumentNames& names_;
  std::size_t offset_;
};

ArgumentValue ArgumentValue::parse(const std::string& text, const ArgumentNames& names, std::size_t offset) {
  return ArgumentParser(text, names, offset).all();
}

bool ArgumentValue::uses(Kind kind) const {
  return kind_ == kind ||
         std::any_of(args_.begin(), args_.end(), [&](const ArgumentValue& arg) { return arg.uses(kind); });
}

namespace {

double extent_of(const ArgumentContext& context, const std::string& symbol) {
  for (const auto& [slot, axis] : context.names.dims.at(symbol))
    if (const ac_tensor* tensor = slot.of(context.call)) return static_cast<double>(tensor->dl.shape[axis]);
  return 0;  // only absent tensors have it
}

double code_of(const ArgumentContext& context, std::int32_t dtype) {
  const auto found = context.names.dtype_codes.find(dtype);
  if (found == context.names.dtype_codes.end()) throw Error("dtype, got one without a code in [dtypes]");
  return static_cast<double>(found->second);
}

double axis_value(const ac_tensor* tensor, double axis, bool stride) {
  if (tensor == nullptr) return 0;
  const auto at = static_cast<int>(axis < 0 ? tensor->dl.ndim + axis : axis);
  if (at < 0 || at >= tensor->dl.ndim)
    throw Error("axis of '" + std::string(tensor->name) + "', got " + number_text(axis) + " of " +
                std::to_string(tensor->dl.ndim));
  return static_cast<double>(stride ? tensor->dl.strides[at] : tensor->dl.shape[at]);
}

}  // namespace

double ArgumentValue::evaluate(const ArgumentContext& context, bool whole) const {
  const auto arg = [&](std::size_t i) { return args_[i].evaluate(context, whole); };
  const auto tensor = [&] { return slot_.of(context.call); };
  switch (kind_) {
    case Kind::number: return number_;
    case Kind::dim: return extent_of(context, name_);
    case Kind::attribute: return context.call.attributes[context.names.attributes.at(name_)].value;
    case Kind::storage_code: return code_of(context, context.call.storage);
    case Kind::workspace_bytes: {
      const auto found = context.names.workspaces.find(name_);
      const auto at = static_cast<std::size_t>(found == context.names.workspaces.end() ? 0 : found->second);
      return at < context.workspaces.size() ? static_cast<double>(context.workspaces[at].bytes) : 0;
    }
    case Kind::dtype_code:
      return tensor() == nullptr ? code_of(context, context.call.storage) : code_of(context, tensor()->dtype);
    case Kind::size: return axis_value(tensor(), number_, false);
    case Kind::stride: return axis_value(tensor(), number_, true);
    case Kind::count: return static_cast<double>(count_of(tensor()));
    case Kind::bytes:
      return tensor() == nullptr ? 0 : static_cast<double>(count_of(tensor()) * tensor()->dl.dtype.bits / 8);
    case Kind::present: return tensor() != nullptr;
    case Kind::negate: return -arg(0);
    case Kind::add: return arg(0) + arg(1);
    case Kind::subtract: return arg(0) - arg(1);
    case Kind::multiply: return arg(0) * arg(1);
    case Kind::divide: {
      const double a = arg(0), b = arg(1);
      if (b == 0 && whole) throw Error("got a division by zero");
      return whole ? std::trunc(a / b) : a / b;
    }
  }
  return 0;
}

namespace {

using Type = LauncherArgument::Type;

struct ScalarName {
  const char* words;
  Type type;
};
// As C on x86-64 and aarch64 Linux; longer names first.
constexpr ScalarName kScalars[] = {{"unsigned long long", Type::u64},
                                   {"long long", Type::i64},
                                   {"unsigned long", Type::u64},
                                   {"unsigned int", Type::u32},
                                   {"unsigned", Type::u32},
                                   {"int64_t", Type::i64},
                                   {"uint64_t", Type::u64},
                                   {"size_t", Type::u64},
                                   {"ptrdiff_t", Type::i64},
                                   {"long", Type::i64},
                                   {"int32_t", Type::i32},
                                   {"uint32_t", Type::u32},
                                   {"int", Type::i32},
                                   {"float", Type::f32},
                                   {"double", Type::f64},
                                   {"bool", Type::boolean}};
constexpr const char* kStreams[] = {"cudaStream_t", "hipStream_t", "CUstream"};

/// Leading words of a parameter.
class Declaration {
 public:
  explicit Declaration(const std::string& text) : text_(text) {}

  std::size_t at() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    return at_;
  }
  bool take(std::string_view words) {
    const std::size_t start = at();
    if (text_.compare(start, words.size(), words) != 0) return false;
    const std::size_t end = start + words.size();
    if (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) return false;
    at_ = end;
    return true;
  }
  bool take_star() {
    if (at() == text_.size() || text_[at_] != '*') return false;
    ++at_;
    return true;
  }
  /// The name of a type, qualified or not.
  std::string type_word() {
    const std::size_t start = at();
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == ':')) ++at_;
    return text_.substr(start, at_ - start);
  }
  std::string rest() { return text_.substr(at()); }
  /// Behind the last word that was taken.
  std::size_t end() const { return at_; }

 private:
  const std::string& text_;
  std::size_t at_ = 0;
};

std::string whole_text(Type type) {
  switch (type) {
    case Type::i32: return "-2147483648 to 2147483647";
    case Type::u32: return "0 to 4294967295";
    case Type::u64: return "0 to 2^53";
    case Type::boolean: return "0 or 1";
    default: return "-2^53 to 2^53";
  }
}

bool fits(Type type, double v) {
  if (v != std::floor(v) || !(std::fabs(v) <= kMostWhole)) return false;
  switch (type) {
    case Type::i32:
      return v >= std::numeric_limits<std::int32_t>::min() && v <= std::numeric_limits<std::int32_t>::max();
    case Type::u32: return v >= 0 && v <= std::numeric_limits<std::uint32_t>::max();
    case Type::u64: return v >= 0;
    case Type::boolean: return v == 0 || v == 1;
    default: return true;
  }
}

std::string single_spaced(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (!is_blank(c))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// Whether the tensor is passed in int32. ArgumentError at `at` for a pointer that does not fit it.
bool is_narrowed(const Pointee& pointee, const std::string& tensor, const ArgumentNames& names, std::size_t at) {
  const auto facts = names.facts.find(tensor);
  if (facts == names.facts.end()) return false;
  try {
    return passed_as(pointee, tensor, facts->second) == Passed::narrowed;
  } catch (const Error& error) {
    throw ArgumentError(at, error.what());
  }
}

}  // namespace

/// parameter = {const|struct} type {const} {* {const|restrict}} value
class ParameterParser {
 public:
  ParameterParser(const std::string& text, const ArgumentNames& names) : text_(text), names_(names), d_(text) {}

  LauncherArgument all() {
    type();
    stars();
    value_at_ = d_.at();
    value_ = d_.rest();
    if (!scalar_ && !stream_ && pointee_.stars == 0) unknown_type();
    if (value_.empty())
      throw ArgumentError(value_at_, "got no value, want what is passed in the place of the parameter's name");
    LauncherArgument out;
    out.text_ = text_;
    if (scalar_ && pointee_.stars == 0) {
      out.type_ = type_;
      out.value_ = ArgumentValue::parse(value_, names_, value_at_);
    } else {
      out.type_ = Type::pointer;
      pass_pointer(out);
    }
    return out;
  }

 private:
  using Source = LauncherArgument::Source;

  void type() {
    for (;;) {
      if (d_.take("const"))
        pointee_.constant = true;
      else if (!d_.take("struct"))
        break;
    }
    type_at_ = d_.at();
    for (const ScalarName& known : kScalars)
      if (!scalar_ && d_.take(known.words)) {
        scalar_ = true;
        type_ = known.type;
      }
    for (const char* known : kStreams)
      if (!scalar_ && !stream_ && d_.take(known)) stream_ = true;
    if (scalar_ && (d_.take("char") || d_.take("short"))) {
      scalar_ = false;
      unknown_ = text_.substr(type_at_, d_.at() - type_at_);  // behind a star only
    } else if (!scalar_ && !stream_) {
      unknown_ = d_.type_word();
      if (unknown_ == "signed" && d_.take("char")) unknown_ = "signed char";
    }
    pointee_.type = single_spaced(text_.substr(type_at_, d_.end() - type_at_));
    while (d_.take("const")) pointee_.constant = true;
  }

  void stars() {
    while (d_.take_star()) {
      ++pointee_.stars;
      while (d_.take("const") || d_.take("__restrict__") || d_.take("__restrict") || d_.take("restrict")) {
      }
    }
  }

  [[noreturn]] void unknown_type() const {
    std::vector<std::string> types;
    for (const ScalarName& known : kScalars) types.emplace_back(known.words);
    if (unknown_.empty())
      throw ArgumentError(type_at_, "got no type, want a C parameter such as \"const void* x\" or \"int64_t N\"");
    throw ArgumentError(type_at_, "got type '" + unknown_ + "'" + meant(unknown_, types) +
                                      ", want a pointer, cudaStream_t or one of " + list_of(types));
  }

  void pass_pointer(LauncherArgument& out) const {
    if (stream_ || value_ == "stream") {
      if (value_ != "stream") throw ArgumentError(value_at_, "got '" + value_ + "', want stream");
      out.source_ = Source::stream;
    } else if (const auto scratch = names_.workspaces.find(value_); scratch != names_.workspaces.end()) {
      out.source_ = Source::workspace;
      out.slot_.index = scratch->second;
    } else if (value_ == "workspace") {
      throw ArgumentError(value_at_, "got a workspace without its size, want workspace = \"4 * N\" (bytes)");
    } else if (value_ == "null") {
      out.source_ = Source::null;
    } else if (const TensorSlot* shape = tensor_in("shape")) {
      out.source_ = Source::shape;
      out.slot_ = *shape;
    } else if (const TensorSlot* strides = tensor_in("strides")) {
      out.source_ = Source::strides;
      out.slot_ = *strides;
    } else if (const auto found = names_.tensors.find(value_); found != names_.tensors.end()) {
      out.source_ = Source::tensor;
      out.slot_ = found->second;
      out.narrowed_ = is_narrowed(pointee_, value_, names_, text_.find_first_not_of(" \t"));
    } else {
      unknown_pointer();
    }
  }

  /// The tensor of "shape(x)", and of "strides(x)"; null where that is not what is passed.
  const TensorSlot* tensor_in(const char* function) const {
    const std::string head = std::string(function) + "(";
    if (!value_.starts_with(head) || !value_.ends_with(")")) return nullptr;
    const std::string name = value_.substr(head.size(), value_.size() - head.size() - 1);
    const auto found = names_.tensors.find(name);
    if (found == names_.tensors.end())
      throw ArgumentError(value_at_ + head.size(), "got '" + name + "', want a tensor");
    if (type_ != Type::i64)
      throw ArgumentError(type_at_, "got another type than int64_t* for " + std::string(function) + "()");
    return &found->second;
  }

  [[noreturn]] void unknown_pointer() const {
    std::vector<std::string> known = {"stream", "workspace", "null"};
    for (const auto& [name, index] : names_.workspaces)
      if (name != "workspace") known.push_back(name);
    for (const auto& [name, slot] : names_.tensors) known.push_back(name);
    throw ArgumentError(value_at_, "got '" + value_ + "' for a pointer" + meant(value_, known) + ", want one of " +
                                       list_of(known) + ", shape(x), strides(x)");
  }

  const std::string& text_;
  const ArgumentNames& names_;
  Declaration d_;
  Pointee pointee_{"", false, 0};
  Type type_ = Type::pointer;  ///< that of the number, or of the numbers that are pointed at
  bool scalar_ = false, stream_ = false;
  std::string unknown_;  ///< the type where it is neither
  std::string value_;
  std::size_t type_at_ = 0, value_at_ = 0;
};

LauncherArgument LauncherArgument::parse(const std::string& text, const ArgumentNames& names) {
  return ParameterParser(text, names).all();
}

LauncherArgument::Value LauncherArgument::evaluate(const ArgumentContext& context) const {
  Value out{};
  const ac_tensor* const tensor = slot_.of(context.call);
  switch (source_) {
    case Source::tensor: out.pointer = tensor == nullptr ? nullptr : tensor->dl.data; return out;
    case Source::shape: out.pointer = tensor == nullptr ? nullptr : tensor->dl.shape; return out;
    case Source::strides: out.pointer = tensor == nullptr ? nullptr : tensor->dl.strides; return out;
    case Source::stream: out.pointer = context.call.stream; return out;
    case Source::workspace: out.pointer = context.workspaces.at(static_cast<std::size_t>(slot_.index)).data; return out;
    case Source::null: return out;
    case Source::value: break;
  }
  const bool whole = type_ != Type::f32 && type_ != Type::f64;
  const double v = value_.evaluate(context, whole);
  if (whole && !fits(type_, v))
    throw Error("argument '" + text_ + "', got " + number_text(v) + ", want " + whole_text(type_));
  switch (type_) {
    case Type::f32: out.f32 = static_cast<float>(v); break;
    case Type::f64: out.f64 = v; break;
    case Type::i32: out.i32 = static_cast<std::int32_t>(v); break;
    case Type::u32: out.u32 = static_cast<std::uint32_t>(v); break;
    case Type::i64: out.i64 = static_cast<std::int64_t>(v); break;
    case Type::u64: out.u64 = static_cast<std::uint64_t>(v); break;
    case Type::boolean: out.boolean = static_cast<std::uint8_t>(v); break;
    case Type::pointer: break;
  }
  return out;
}

}  // namespace ampcheck::checks
