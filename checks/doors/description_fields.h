// SPDX-License-Identifier: Apache-2.0
// Fields of a plug-in's description, which is hostile until proved otherwise: every pointer, count, size and text is
// checked before it is used, and what is wrong names its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "checks/doors/plugin.h"

namespace ampcheck::checks::description {

inline constexpr std::uint32_t kMostStructSize = 1 << 16;
inline constexpr int kMostEntries = 64;  ///< tensors, attributes, dims, forms
inline constexpr int kMostOps = 10'000;
inline constexpr std::size_t kMostName = 64, kMostLine = 400;
inline constexpr std::int64_t kMostExtent = std::int64_t{1} << 24;

/// A place in a description: "libmy_op.so: op 'my_op', input 2".
class Place {
 public:
  explicit Place(std::string text) : text_(std::move(text)) {}
  Place in(const std::string& what) const {
    const char* between = what.front() == '\'' ? " " : text_.find(':') == std::string::npos ? ": " : ", ";
    return Place(text_ + between + what);
  }
  Place entry(const char* what, int index) const { return in(std::string(what) + " " + std::to_string(index + 1)); }
  [[noreturn]] void fail(const std::string& what) const { throw PluginError("[" + text_ + "] " + what); }

 private:
  std::string text_;
};

// Version 1. Once a field was appended, sized() must go on to take these sizes from older plug-ins.
static_assert(sizeof(ac_plugin) == 40 && offsetof(ac_op, jvp) == 144 && sizeof(ac_op) == 176 && sizeof(ac_kink) == 32 &&
              sizeof(ac_extension) == 24 && sizeof(ac_double_backward) == 16 && sizeof(ac_variant) == 48 &&
              sizeof(ac_variants) == 16 && sizeof(ac_source) == 16 && sizeof(ac_input) == 48 &&
              offsetof(ac_output, dims) == 32 && sizeof(ac_attribute) == 32 && sizeof(ac_dim) == 56 &&
              sizeof(ac_math) == 80 && offsetof(ac_contract, largest_input) == 48 && sizeof(ac_contract) == 72 &&
              sizeof(ac_form) == 24);

/// The size of a struct in the first plug-ins: fields that were appended since may be missing.
template <class T>
inline constexpr std::size_t kFirstSize = sizeof(T);
template <>
inline constexpr std::size_t kFirstSize<ac_output> = offsetof(ac_output, dims);
template <>
inline constexpr std::size_t kFirstSize<ac_contract> = offsetof(ac_contract, largest_input);
template <>
inline constexpr std::size_t kFirstSize<ac_op> = offsetof(ac_op, jvp);

/// A struct as this program knows it: fields beyond the plug-in's struct_size are zero. Sizes are those of version 1 or
/// larger.
template <class T>
T sized(const T* from, const Place& place) {
  std::uint32_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < kFirstSize<T> || size > kMostStructSize)
    place.fail("struct_size, got " + std::to_string(size) + ", want " + std::to_string(kFirstSize<T>) +
               " or more (sizeof the struct)");
  T out = {};
  std::memcpy(&out, from, std::min<std::size_t>(size, sizeof out));
  return out;
}

/// An array whose elements have the struct_size of the first.
template <class T>
std::vector<T> array(const T* from, std::int32_t count, const char* what, const Place& place, int most = kMostEntries) {
  if (count < 0 || count > most)
    place.fail(std::string(what) + " count, got " + std::to_string(count) + ", want 0 to " + std::to_string(most));
  if (count > 0 && from == nullptr)
    place.fail(std::string(what) + "s, got a null pointer and count " + std::to_string(count));
  std::vector<T> out;
  for (std::int32_t i = 0; i < count; ++i) {
    const Place at = place.entry(what, i);
    const std::size_t step = sized(from, at).struct_size;
    const T* element =
        reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(from) + step * static_cast<std::size_t>(i));
    out.push_back(sized(element, at));
    if (out.back().struct_size != step)
      at.fail("struct_size, got " + std::to_string(out.back().struct_size) + ", want that of the first element, " +
              std::to_string(step));
  }
  return out;
}

/// A text of limited length; "" for null.
std::string text(const char* from, std::size_t most, const char* what, const Place& place);
std::string one_line(const char* from, const char* what, const Place& place);
/// Letters, digits and _, not beginning with a digit.
std::string name_of(const char* from, const char* what, const Place& place);
/// Where an op is written, of the extension AC_SOURCE.
SourceLine source_line(const ac_source* from, const Place& place);
void require_flags(std::uint32_t flags, std::uint32_t known, const Place& place);

template <class E>
E choice(std::int32_t value, std::initializer_list<E> choices, const char* what, const Place& place) {
  if (value < 0 || static_cast<std::size_t>(value) >= choices.size())
    place.fail(std::string(what) + ", got " + std::to_string(value) + ", want 0 to " +
               std::to_string(choices.size() - 1));
  return choices.begin()[value];
}

}  // namespace ampcheck::checks::description
