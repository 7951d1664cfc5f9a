// SPDX-License-Identifier: Apache-2.0
// What torch really gave (torch_goldens/*.json) as a small tree, so that one file alone pays for the JSON parser.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tensor.h"

namespace ampcheck::tests {

struct Golden {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  double value = 0.0;
  bool truth = false;
  std::string text;
  std::vector<std::string> keys;  ///< object: names of the items, in the file's order
  std::vector<Golden> items;

  bool is_null() const { return kind == Kind::null; }
  bool is_object() const { return kind == Kind::object; }
  bool is_list() const { return kind == Kind::list; }
  bool is_text() const { return kind == Kind::text; }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Golden* find(std::string_view key) const;
  /// Throws std::runtime_error if absent.
  const Golden& at(std::string_view key) const;
  const Golden& operator[](std::size_t i) const { return items.at(i); }
  std::size_t size() const { return items.size(); }
  auto begin() const { return items.begin(); }
  auto end() const { return items.end(); }
};

/// The file under torch_goldens/, or null if this machine has none. Parsed once per program.
const Golden* load_golden(const std::string& file);

/// A number in any of the goldens' forms: {"hex": ...}, "0x1p+3", "inf", 3.
double real(const Golden& golden);
Dtype dtype_of(const std::string& torch_name);
/// A dense tensor {"dtype", "shape", "hex"}; integers of "value".
Tensor tensor_of(const Golden& golden);
/// Equal bits; NaN as NaN, -0 is not 0.
testing::AssertionResult same_tensor(const Tensor& got, const Golden& want);
testing::AssertionResult same_number(double got, double want);

}  // namespace ampcheck::tests

/// Declares `name` as the golden file, or skips the test.
#define AMPCHECK_GOLDEN_OR_SKIP(name, file)                                                    \
  const auto* const name##_or_null = ::ampcheck::tests::load_golden(file);                     \
  if (name##_or_null == nullptr)                                                               \
    GTEST_SKIP() << "torch_goldens/" << (file)                                                 \
                 << " is not on this machine (AMPCHECK_SHARED, or shared/ beside the source)"; \
  const ::ampcheck::tests::Golden& name = *name##_or_null
