// SPDX-License-Identifier: Apache-2.0
// Everything ampcheck knows of one op: what it promises, its kernel, its formula in every admitted form.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"
#include "reference/graph/formula.h"
#include "src/op_signature.h"

namespace ampcheck::checks {

/// A line of a source file.
struct SourceLine {
  std::string file = {};  ///< as its compiler was given it; empty: not known
  int line = 1;
};

struct OpDef {
  OpSignature signature;
  /// The shared library that it comes from, as the user wrote it; empty for a built-in op.
  std::string plugin = {};
  /// Where that library's author describes it.
  SourceLine source = {};
  kernels::Kernel kernel;
  /// The first form defines the op. The others are algebras that correct kernels use, proved equal to it in 100 digits;
  /// an element is right iff it lies in the interval of some form, for forward and gradients separately. None: a black
  /// box, whose gradients are compared with differences of itself (checks/judge/black_box.h).
  std::vector<reference::Form> forms;
  /// The form that the kernel is believed to follow: the judge tries it first. It decides how long a check takes and
  /// against which form the headroom is given, never a verdict.
  std::size_t tried_first = 0;
  /// Whether its forward is a gradient: at a kink of the op that it is of, another number may be as good
  /// (checks/judge/kinks.h).
  bool of_gradient = false;
  /// Of a built-in op: judged as an author's op is, whose forms are not all that kernels use
  /// (reference/replay/regrouped.h).
  bool authored = false;
};

/// Every op of the list in CMakeLists.txt, in that order.
std::span<const OpDef> all_ops();
/// The op of that name, or null; planted ones (checks/zoo/planted.h, checks/zoo/zoo.h) by their full name "op.variant".
const OpDef* find_op(std::string_view name);

/// The ulp bounds of kernels/math.h, as the math set of the built-in ops' contracts.
MathSet own_math();
/// Those of CUDA's and of glibc's functions in single precision: the tables "Mathematical Functions" of the CUDA C++
/// Programming Guide and "Known Maximum Errors in Math Functions" of the glibc manual (x86_64). 1/sqrtf(x) rounds
/// twice.
MathSet cuda_math();
MathSet glibc_math();

}  // namespace ampcheck::checks
