// SPDX-License-Identifier: Apache-2.0
#include "src/digest.h"

#include <fmt/format.h>

#include <bit>

#include "src/file_bytes.h"

namespace ampcheck {

namespace {

constexpr std::uint64_t kFirst = 0x87c37b91114253d5, kSecond = 0x4cf5ad432745937f;

std::uint64_t mixed_first(std::uint64_t k) { return std::rotl(k * kFirst, 31) * kSecond; }
std::uint64_t mixed_second(std::uint64_t k) { return std::rotl(k * kSecond, 33) * kFirst; }

std::uint64_t finished(std::uint64_t k) {
  k = (k ^ k >> 33) * 0xff51afd7ed558ccd;
  k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53;
  return k ^ k >> 33;
}

}  // namespace

Digest digest_of(std::string_view bytes) {
  constexpr std::size_t kBlock = 16;
  std::uint64_t a = 0, b = 0;
  const std::size_t blocks = bytes.size() / kBlock;
  for (std::size_t i = 0; i < blocks; ++i) {
    a = (std::rotl(a ^ mixed_first(take<std::uint64_t>(bytes, 2 * i)), 27) + b) * 5 + 0x52dce729;
    b = (std::rotl(b ^ mixed_second(take<std::uint64_t>(bytes, 2 * i + 1)), 31) + a) * 5 + 0x38495ab5;
  }
  std::string tail(bytes.substr(blocks * kBlock));
  tail.resize(kBlock, '\0');  // a half that is all zero changes nothing
  b ^= mixed_second(take<std::uint64_t>(tail, 1));
  a ^= mixed_first(take<std::uint64_t>(tail, 0));
  a ^= bytes.size();
  b ^= bytes.size();
  a += b;
  b += a;
  a = finished(a);
  b = finished(b);
  a += b;
  return {a, b + a};
}

std::string Digest::str() const { return fmt::format("{:016x}{:016x}", low, high); }

}  // namespace ampcheck
