// SPDX-License-Identifier: Apache-2.0
// Kernels in hand-written PTX, run on arrays of the test.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "src/ptx/program.h"
#include "src/ptx/run.h"

namespace ampcheck::ptx {

/// A kernel k(a, b, n) around a body. At hand are %a and %b (addresses), %n, %t (thread), %i (element of the grid),
/// %pa and %pb (addresses of that element, 4 bytes each) and %s (4 * thread); free are %r0.., %f0.., %d0.., %h0..,
/// %p0.. .
inline std::string kernel_text(const std::string& body, const std::string& variables = "") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n" + variables +
         "\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n)\n{\n"
         ".reg .b64 %a, %b, %pa, %pb, %o, %d<20>;\n.reg .b32 %n, %t, %c, %w, %i, %s, %r<40>;\n.reg .f32 %f<40>;\n"
         ".reg .b16 %h<20>;\n.reg .f64 %g<10>;\n.reg .pred %p<10>;\n"
         "ld.param.u64 %a, [a];\nld.param.u64 %b, [b];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\nmov.u32 %c, "
         "%ctaid.x;\n"
         "mov.u32 %w, %ntid.x;\nmad.lo.s32 %i, %c, %w, %t;\nmul.wide.s32 %o, %i, 4;\nadd.s64 %pa, %a, %o;\n"
         "add.s64 %pb, %b, %o;\nshl.b32 %s, %t, 2;\n" +
         body + "\nret;\n}\n";
}

struct Ran {
  Outcome outcome;
  std::vector<std::uint32_t> b;

  bool has(Code code, const std::string& words = "") const {
    for (const LaunchNote& note : outcome.notes)
      if (note.code == code && note.text.find(words) != std::string::npos) return true;
    return false;
  }
  int findings() const {
    int out = 0;
    for (const LaunchNote& note : outcome.notes) out += note.code != Code::none;
    return out;
  }
  std::string text() const {
    std::string out;
    for (const LaunchNote& note : outcome.notes) out += std::string(name(note.code)) + " " + note.text + "\n";
    return out;
  }
  float f(std::size_t i) const { return std::bit_cast<float>(b[i]); }
};

struct Shape {
  std::uint32_t grid = 1, block = 64, shared = 0;
  std::size_t a_bytes = 0;  ///< of a; 0: as long as it is
  bool b_initialised = false;
  std::uint64_t schedule = 0;
  bool follow = false;  ///< in fp64
  bool fuse = false;    ///< products and sums
};

/// b has as many words as `out` says; n is the number of words of a.
inline Ran run_text(const std::string& text, const std::vector<std::uint32_t>& a, std::size_t out, const Shape& shape) {
  const auto program = decode(parse(text, "test.ptx"), {.fuse = shape.fuse});
  // Far from each other: a message names the nearest tensor.
  constexpr std::size_t kApart = 1 << 16;
  std::vector<std::uint32_t> memory(a.size() + kApart + out, 0x7fc0deadu);
  const auto b = memory.begin() + static_cast<std::ptrdiff_t>(a.size() + kApart);
  std::copy(a.begin(), a.end(), memory.begin());
  if (shape.b_initialised) std::fill(b, memory.end(), 0u);
  Ran ran;
  Launch launch;
  launch.grid = {shape.grid, 1, 1};
  launch.block = {shape.block, 1, 1};
  launch.dynamic_shared = shape.shared;
  launch.schedule = shape.schedule;
  launch.follow = shape.follow;
  launch.params.resize(32);
  const std::uint64_t pointers[2] = {reinterpret_cast<std::uintptr_t>(memory.data()),
                                     reinterpret_cast<std::uintptr_t>(memory.data() + a.size() + kApart)};
  const auto n = static_cast<std::uint32_t>(a.size());
  std::memcpy(launch.params.data(), pointers, 16);
  std::memcpy(launch.params.data() + 16, &n, 4);
  launch.regions = {{"a", pointers[0], shape.a_bytes != 0 ? shape.a_bytes : a.size() * 4, true},
                    {"b", pointers[1], out * 4, shape.b_initialised}};
  ran.outcome = run(*program, "k", launch);
  ran.b.assign(b, memory.end());
  return ran;
}

inline std::vector<std::uint32_t> floats(std::size_t n) {
  std::vector<std::uint32_t> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = std::bit_cast<std::uint32_t>(1.0f + static_cast<float>(i % 7) / 3.0f);
  return out;
}

}  // namespace ampcheck::ptx
