// SPDX-License-Identifier: Apache-2.0
#include "tests/support/goldens.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/shared_data.h"

namespace ampcheck::tests {

namespace {

Golden convert(const nlohmann::ordered_json& json) {
  Golden golden;
  if (json.is_boolean()) {
    golden.kind = Golden::Kind::boolean;
    golden.truth = json.get<bool>();
  } else if (json.is_number()) {
    golden.kind = Golden::Kind::number;
    golden.value = json.get<double>();
  } else if (json.is_string()) {
    golden.kind = Golden::Kind::text;
    golden.text = json.get<std::string>();
  } else if (json.is_array()) {
    golden.kind = Golden::Kind::list;
    for (const auto& item : json) golden.items.push_back(convert(item));
  } else if (json.is_object()) {
    golden.kind = Golden::Kind::object;
    for (const auto& [key, item] : json.items()) {
      golden.keys.push_back(key);
      golden.items.push_back(convert(item));
    }
  }
  return golden;
}

}  // namespace

const Golden* Golden::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

const Golden& Golden::at(std::string_view key) const {
  if (const Golden* found = find(key)) return *found;
  throw std::runtime_error("golden: no field '" + std::string(key) + "'");
}

const Golden* load_golden(const std::string& file) {
  static std::map<std::string, std::unique_ptr<Golden>> loaded;
  const auto found = loaded.find(file);
  if (found != loaded.end()) return found->second.get();
  std::unique_ptr<Golden>& golden = loaded[file];
  if (const auto path = shared_file("torch_goldens/" + file)) {
    std::ifstream stream(*path);
    golden = std::make_unique<Golden>(convert(nlohmann::ordered_json::parse(stream)));
  }
  return golden.get();
}

double real(const Golden& golden) {
  if (golden.kind == Golden::Kind::number) return golden.value;
  if (golden.kind == Golden::Kind::boolean) return golden.truth ? 1.0 : 0.0;
  const std::string& text = golden.is_text() ? golden.text : golden.at("hex").text;
  return std::strtod(text.c_str(), nullptr);
}

Dtype dtype_of(const std::string& torch_name) {
  static const std::map<std::string, Dtype> names = {
      {"float32", Dtype::fp32},    {"float64", Dtype::fp64}, {"float16", Dtype::fp16}, {"bfloat16", Dtype::bf16},
      {"int32", Dtype::i32},       {"int64", Dtype::i64},    {"uint8", Dtype::u8},     {"float8_e4m3fn", Dtype::e4m3fn},
      {"float8_e5m2", Dtype::e5m2}};
  const auto found = names.find(torch_name);
  if (found == names.end()) throw std::runtime_error("golden: dtype '" + torch_name + "'");
  return found->second;
}

Tensor tensor_of(const Golden& golden) {
  std::vector<std::int64_t> extents;
  for (const Golden& extent : golden.at("shape")) extents.push_back(static_cast<std::int64_t>(extent.value));
  Tensor tensor(dtype_of(golden.at("dtype").text), Shape(std::span<const std::int64_t>(extents)));
  const Golden* hex = golden.find("hex");
  std::vector<double> values;
  for (const Golden& item : hex != nullptr ? *hex : golden.at("value")) values.push_back(real(item));
  from_doubles(values, tensor.view());
  return tensor;
}

testing::AssertionResult same_number(double got, double want) {
  if (std::isnan(got) && std::isnan(want)) return testing::AssertionSuccess();
  if (got == want && std::signbit(got) == std::signbit(want)) return testing::AssertionSuccess();
  char text[80];
  std::snprintf(text, sizeof text, "got %a, want %a", got, want);
  return testing::AssertionFailure() << text;
}

testing::AssertionResult same_tensor(const Tensor& got, const Golden& want) {
  const Tensor expected = tensor_of(want);
  if (!got.defined()) return testing::AssertionFailure() << "got no tensor";
  if (got.dtype() != expected.dtype() || !(got.shape() == expected.shape()))
    return testing::AssertionFailure() << "got " << name(got.dtype()) << got.shape().str() << ", want "
                                       << name(expected.dtype()) << expected.shape().str();
  const std::vector<double> a = to_doubles(got.view()), b = to_doubles(expected.view());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (const auto same = same_number(a[i], b[i]); !same)
      return testing::AssertionFailure() << "element " << i << ": " << same.message();
  return testing::AssertionSuccess();
}

}  // namespace ampcheck::tests
