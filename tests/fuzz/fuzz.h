// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target takes any bytes: a refusal is an ampcheck::Error, everything else that is
// thrown, a broken promise or a sanitizer's word is a finding.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "src/tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ampcheck::fuzz {

inline void require(bool held, const char* promise) {
  if (held) return;
  std::fprintf(stderr, "fuzz: broken promise: %s\n", promise);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const auto size = static_cast<std::size_t>(a.count()) * static_cast<std::size_t>(bytes(a.dtype()));
  return size == 0 || std::memcmp(a.data(), b.data(), size) == 0;
}

/// Takes numbers and texts off bytes; zeros after their end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}
  template <class T>
  T take() {
    T out{};
    const std::size_t n = std::min(sizeof(T), rest_.size());
    std::memcpy(&out, rest_.data(), n);
    rest_ = rest_.subspan(n);
    return out;
  }
  /// Up to the next zero byte.
  std::string word() {
    std::size_t n = 0;
    while (n < rest_.size() && rest_[n] != 0) ++n;
    std::string out(reinterpret_cast<const char*>(rest_.data()), n);
    rest_ = rest_.subspan(std::min(n + 1, rest_.size()));
    return out;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
};

}  // namespace ampcheck::fuzz
