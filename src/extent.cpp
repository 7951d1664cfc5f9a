// SPDX-License-Identifier: Apache-2.0
#include "src/extent.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "src/arithmetic.h"
#include "src/error.h"
#include "src/op_call.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // as in case names

using Whole = std::optional<std::int64_t>;

/// A value while it is read; of null dims and attributes the names alone.
class ExtentReader : public ArithmeticReader<ExtentReader, Whole> {
 public:
  ExtentReader(const std::string& text, const Dims* dims, const Attributes* attributes)
      : ArithmeticReader(text), dims_(dims), attributes_(attributes) {}

  std::vector<std::string> names;

  [[noreturn]] void fail(std::size_t at, const std::string& what) const {
    throw Error(what + (at == 0 ? "" : ", behind '" + text_.substr(0, at) + "'"));
  }

  Whole leaf() {
    skip();
    if (at_ < text_.size() && is_digit(text_[at_])) return number();
    const std::string name = word();
    if (name.empty()) fail(at_, "got " + here() + ", want a symbol, an attribute or a whole number");
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return dims_ == nullptr ? Whole() : value_of(name);
  }

  static Whole negated(Whole a) { return a ? Whole(-*a) : a; }

  static Whole combine(char op, Whole a, Whole b) {
    if (!a || !b || (op == '/' && *b == 0)) return {};
    switch (op) {
      case '+': return bounded(*a + *b);
      case '-': return bounded(*a - *b);
      case '*': {
        std::int64_t out = 0;
        return __builtin_mul_overflow(*a, *b, &out) ? Whole() : bounded(out);
      }
      default: return *a / *b - (*a % *b != 0 && (*a < 0) != (*b < 0) ? 1 : 0);
    }
  }

 private:
  static Whole bounded(std::int64_t value) { return std::abs(value) <= kMost ? Whole(value) : Whole(); }

  Whole number() {
    const std::size_t start = at_;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(end - text_.data());
    if (error != std::errc() || value > kMost || (at_ < text_.size() && (text_[at_] == '.' || is_letter(text_[at_]))))
      fail(start, "got '" + text_.substr(start) + "', want a whole number up to 2^40");
    return value;
  }

  Whole value_of(const std::string& name) const {
    if (const auto dim = dims_->find(name); dim != dims_->end()) return dim->second;
    const auto attribute = attributes_->all().find(name);
    const double* const value =
        attribute == attributes_->all().end() ? nullptr : std::get_if<double>(&attribute->second);
    if (value == nullptr || *value != std::floor(*value) || !(std::fabs(*value) <= static_cast<double>(kMost)))
      return {};
    return static_cast<std::int64_t>(*value);
  }

  const Dims* dims_;
  const Attributes* attributes_;
};

bool is_operator(char c) { return c == '+' || c == '-' || c == '*' || c == '/'; }

}  // namespace

bool has_dim(const OpSignature& signature, std::string_view symbol) {
  return std::any_of(signature.dims.begin(), signature.dims.end(),
                     [&](const DimSpec& dim) { return dim.symbol == symbol; });
}

std::vector<std::string> extents_in(std::string_view dims) {
  std::vector<std::string> out;
  int open = 0;
  bool apart = true;  // a blank stands before
  for (const char c : dims) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      apart = true;
      continue;
    }
    const bool goes_on = !out.empty() && (open > 0 || is_operator(c) || c == ')' || is_operator(out.back().back()));
    if (apart && !goes_on) out.emplace_back();
    out.back() += c;
    open += c == '(' ? 1 : c == ')' ? -1 : 0;
    apart = false;
  }
  return out;
}

std::vector<std::string> names_in_extent(const std::string& extent) {
  ExtentReader reader(extent, nullptr, nullptr);
  reader.all();
  return std::move(reader.names);
}

std::optional<std::int64_t> extent_value(const std::string& extent, const Dims& dims, const Attributes& attributes) {
  // Most extents are a symbol, and those of dumps ("#64") are no names.
  if (const auto dim = dims.find(extent); dim != dims.end()) return dim->second;
  return ExtentReader(extent, &dims, &attributes).all();
}

std::string extent_origin(const std::string& extent, const Dims& dims, const Attributes& attributes) {
  if (dims.contains(extent)) return "";
  const bool alone = attributes.all().contains(extent);
  std::string out = alone ? "" : extent;
  const char* between = alone ? "" : " of ";
  for (const std::string& name : names_in_extent(extent)) {
    const std::optional<std::int64_t> value = extent_value(name, dims, attributes);
    if (!value) continue;
    out += between + name + "=" + std::to_string(*value);
    between = ", ";
  }
  return out;
}

bool extents_exist(const std::vector<std::string>& extents, const Dims& dims, const Attributes& attributes) {
  return std::all_of(extents.begin(), extents.end(), [&](const std::string& extent) {
    return extent_value(extent, dims, attributes).value_or(-1) >= 0;
  });
}

}  // namespace ampcheck
