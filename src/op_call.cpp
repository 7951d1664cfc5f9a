// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/op_call.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "src/error.h"
#include "src/extent.h"
#include "src/suggestion.h"

namespace ampcheck {

std::string number_text(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

namespace {

std::string text_of(const AttributeValue& value) {
  if (const double* number = std::get_if<double>(&value)) return number_text(*number);
  return std::get<std::string>(value);
}

[[noreturn]] void fail(std::string_view text, std::size_t at, const std::string& what) {
  throw Error("[case name] " + what + " at column " + std::to_string(at + 1) + " of '" + std::string(text) + "'");
}

std::int64_t parse_extent(std::string_view text, std::size_t at, std::string_view word) {
  std::int64_t value = 0;
  const auto end = std::from_chars(word.data(), word.data() + word.size(), value);
  if (end.ec != std::errc{} || end.ptr != word.data() + word.size() || value < 0 || value > (std::int64_t{1} << 40))
    fail(text, at, "got '" + std::string(word) + "', want an extent from 0 to 2^40");
  return value;
}

struct Field {
  std::string_view key, value;
  std::size_t at;
};

/// Splits "op(a=b[1,2],c=d)" at the commas outside brackets.
std::vector<Field> split_fields(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')')
    fail(text, text.size(), "got no '(...)', want op(key=value,...) (ampcheck list OP --cases prints them)");
  std::vector<Field> fields;
  int depth = 0;
  std::size_t start = open + 1;
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[') ++depth;
    if (c == ']' && --depth < 0) fail(text, i, "got ']' without its '['");
    if ((c == ',' && depth == 0) || i + 1 == text.size()) {
      const std::string_view item = text.substr(start, i - start);
      const std::size_t equal = item.find('=');
      if (!item.empty()) {
        if (equal == std::string_view::npos) fail(text, start, "got '" + std::string(item) + "', want key=value");
        fields.push_back({item.substr(0, equal), item.substr(equal + 1), start});
      }
      start = i + 1;
    }
  }
  if (depth != 0) fail(text, text.size(), "got '[' without its ']'");
  return fields;
}

/// The tensor whose printed type is the storage dtype of the case: the first input may be indices. Null if none is
/// stored so.
const TensorSpec* storage_input(const OpSignature& signature) {
  for (const TypeRule rule : {TypeRule::storage, TypeRule::parameter})
    for (const TensorSpec& spec : signature.inputs)
      if (spec.type == rule && !spec.optional) return &spec;
  return nullptr;
}

/// The dtype that stands before the extents of "bf16[5,7]".
Dtype parse_dtype(std::string_view text, const Field& field) {
  const std::string_view type = field.value.substr(0, field.value.find('['));
  const DtypeInfo* dtype = find_dtype(type);
  if (dtype == nullptr) fail(text, field.at, "got dtype '" + std::string(type) + "', want fp32, fp16, bf16, ...");
  return dtype->dtype;
}

/// An extent that follows from others, as the case gives it.
struct Given {
  const Field& field;
  const TensorSpec& spec;
  std::string extent;
  std::int64_t value;
};

/// "bf16[5,7]", "fp32" or "none" for one input; the storage dtype of the call is known.
void parse_tensor(std::string_view text, const Field& field, const TensorSpec& spec, const OpSignature& signature,
                  OpCall& call, std::vector<Given>& given) {
  if (field.value == "none") {
    if (!spec.optional) fail(text, field.at, "got none for '" + spec.name + "', which is not optional");
    call.absent.push_back(spec.name);
    return;
  }
  const std::size_t open = field.value.find('[');
  const Dtype dtype = parse_dtype(text, field), usual = dtype_of(spec.type, call.storage);
  if (dtype != usual) {
    if (spec.type != TypeRule::parameter)
      fail(text, field.at, "got " + std::string(name(dtype)) + " for '" + spec.name + "', want " + name(usual));
    call.dtypes[spec.name] = dtype;
  }
  if (open == std::string_view::npos) return;
  std::string_view list = field.value.substr(open + 1);
  if (list.empty() || list.back() != ']') fail(text, field.at, "got no ']' after the extents");
  list.remove_suffix(1);
  const std::vector<std::string> symbols = OpSignature::symbols(spec);
  std::size_t axis = 0;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (axis == symbols.size())
      fail(text, field.at, "got too many extents for '" + spec.name + "', want [" + spec.dims + "]");
    const std::int64_t extent = parse_extent(text, field.at, list.substr(0, comma));
    const std::string& symbol = symbols[axis++];
    const auto known = call.dims.find(symbol);
    if (known != call.dims.end() && known->second != extent)
      fail(text, field.at,
           "got " + symbol + "=" + std::to_string(extent) + " in '" + spec.name + "', but it is " +
               std::to_string(known->second) + " before");
    if (has_dim(signature, symbol))
      call.dims[symbol] = extent;
    else
      given.push_back({field, spec, symbol, extent});
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  if (axis != symbols.size())
    fail(text, field.at, "got too few extents for '" + spec.name + "', want [" + spec.dims + "]");
}

AttributeValue parse_attribute(std::string_view text, const Field& field, const AttributeSpec& spec) {
  if (std::holds_alternative<std::string>(spec.default_value)) return std::string(field.value);
  double value = 0;
  const auto end = std::from_chars(field.value.data(), field.value.data() + field.value.size(), value);
  if (end.ec != std::errc{} || end.ptr != field.value.data() + field.value.size())
    fail(text, field.at, "got '" + std::string(field.value) + "' for " + spec.name + ", want a number");
  if (!std::isfinite(value) || (spec.whole && value != std::floor(value)))
    fail(text, field.at,
         "got '" + std::string(field.value) + "' for " + spec.name + ", want a " + (spec.whole ? "whole" : "finite") +
             " number");
  return value;
}

}  // namespace

bool OpCall::has(const TensorSpec& spec) const {
  return std::find(absent.begin(), absent.end(), spec.name) == absent.end();
}

Dtype OpCall::dtype(const TensorSpec& spec) const {
  const auto special = dtypes.find(spec.name);
  return special != dtypes.end() ? special->second : dtype_of(spec.type, storage);
}

Shape OpCall::shape(const TensorSpec& spec) const {
  std::vector<std::int64_t> extents;
  for (const std::string& extent : OpSignature::symbols(spec)) {
    const std::optional<std::int64_t> value = extent_value(extent, dims, attributes);
    if (!value) throw Error("[" + op + "] '" + spec.name + "', got no value for its extent '" + extent + "'");
    extents.push_back(*value);
  }
  return Shape(std::span<const std::int64_t>(extents));
}

std::string OpCall::str(const OpSignature& signature) const {
  std::string out = op + "(";
  std::set<std::string> known;
  bool first = true;
  const TensorSpec* stored = storage_input(signature);
  for (const TensorSpec& spec : signature.inputs) {
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    const bool news = std::any_of(symbols.begin(), symbols.end(),
                                  [&](const auto& s) { return dims.contains(s) && !known.contains(s); });
    const bool unusual_type = dtype(spec) != dtype_of(spec.type, storage);
    if (!has(spec)) {
      out += (first ? "" : ",") + spec.name + "=none";
    } else if (first || news || unusual_type || &spec == stored) {
      out +=
          (first ? "" : ",") + spec.name + "=" + ampcheck::name(dtype(spec)) + (first || news ? shape(spec).str() : "");
      known.insert(symbols.begin(), symbols.end());
    }
    first = false;
  }
  for (const AttributeSpec& spec : signature.attributes) {
    const AttributeValue& value = attributes.all().at(spec.name);
    if (value != spec.default_value) out += "," + spec.name + "=" + text_of(value);
  }
  if (range != "normal") out += ",range=" + range;
  if (cotangent != "mixed") out += ",cotangent=" + cotangent;
  if (layout != "dense") out += ",layout=" + layout;
  return out + ",seed=" + std::to_string(seed) + ")";
}

OpCall default_call(const OpSignature& signature, Dtype storage) {
  OpCall call;
  call.op = signature.name;
  call.storage = storage;
  for (const DimSpec& dim : signature.dims) call.dims[dim.symbol] = dim.standard[0];
  for (const AttributeSpec& spec : signature.attributes) call.attributes.set(spec.name, spec.default_value);
  return call;
}

std::string_view op_of(std::string_view case_name) { return case_name.substr(0, case_name.find('(')); }

OpCall parse_call(std::string_view text, const OpSignature& signature) {
  OpCall call = default_call(signature, Dtype::fp32);
  call.dims.clear();
  if (op_of(text) != signature.name) fail(text, 0, "got op '" + std::string(op_of(text)) + "', want " + signature.name);
  const std::vector<Field> fields = split_fields(text);
  const TensorSpec* stored = storage_input(signature);
  std::vector<Given> given;
  for (const Field& field : fields)
    if (stored != nullptr && field.key == stored->name && field.value != "none")
      call.storage = parse_dtype(text, field);
  for (const Field& field : fields) {
    const std::string key(field.key);
    const TensorSpec* spec = signature.input(key);
    const auto attribute = std::find_if(signature.attributes.begin(), signature.attributes.end(),
                                        [&](const AttributeSpec& a) { return a.name == key; });
    if (spec != nullptr)
      parse_tensor(text, field, *spec, signature, call, given);
    else if (attribute != signature.attributes.end())
      call.attributes.set(key, parse_attribute(text, field, *attribute));
    else if (key == "range")
      call.range = field.value;
    else if (key == "cotangent")
      call.cotangent = field.value;
    else if (key == "layout")
      call.layout = field.value;
    else if (key == "seed") {
      const auto end = std::from_chars(field.value.data(), field.value.data() + field.value.size(), call.seed);
      if (end.ec != std::errc{} || end.ptr != field.value.data() + field.value.size())
        fail(text, field.at, "got seed '" + std::string(field.value) + "', want a whole number");
    } else {
      std::vector<std::string> keys = {"range", "cotangent", "layout", "seed"};
      for (const TensorSpec& s : signature.inputs) keys.push_back(s.name);
      for (const AttributeSpec& a : signature.attributes) keys.push_back(a.name);
      fail(text, field.at, "got unknown key '" + key + "'" + did_you_mean(key, keys));
    }
  }
  for (const DimSpec& dim : signature.dims) {
    if (call.dims.contains(dim.symbol)) continue;
    const bool wanted = std::any_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) {
      const std::vector<std::string> symbols = OpSignature::symbols(spec);
      return call.has(spec) && std::find(symbols.begin(), symbols.end(), dim.symbol) != symbols.end();
    });
    if (!wanted)
      call.dims[dim.symbol] = dim.standard[0];  // only absent tensors have it
    else
      fail(text, text.size(), "got no extent for " + dim.symbol + ", want all shapes");
  }
  for (const Given& one : given) {
    const std::optional<std::int64_t> want = extent_value(one.extent, call.dims, call.attributes);
    if (want == one.value) continue;
    fail(text, one.field.at,
         "got " + std::to_string(one.value) + " in '" + one.spec.name + "', want " +
             (want ? std::to_string(*want) + ", " : std::string()) +
             extent_origin(one.extent, call.dims, call.attributes));
  }
  return call;
}

bool matches(std::string_view pattern, std::string_view text) {
  if (pattern == text) return true;
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else
      return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= best_distance)
      continue;  // no fewer letters are to be put in or taken out
    std::vector<std::size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i);
      for (std::size_t j = 1; j <= candidate.size(); ++j) {
        const std::size_t substitution = diagonal + (word[i - 1] != candidate[j - 1]);
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substitution}));
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace ampcheck
