// SPDX-License-Identifier: Apache-2.0
// The zoo: kernels of the built-in ops with planted defects, and correct kernels that compute in other ways. It
// measures ampcheck itself (`ampcheck audit zoo`). Each specimen is an op named <op>.<name>; `replay` and `check` find
// it by that name. Defects are written from the public reports of their class, not from what the checks do with them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checks/define/op_def.h"
#include "src/finding.h"

namespace ampcheck::checks::zoo {

/// A kind of gradient bug that was met in public code.
struct DefectClass {
  int number;
  const char* what;
  const char* reports;  ///< repository#issue or commit of public examples; "-": a known idea without one
};
/// The 48 classes, by number from 1.
std::span<const DefectClass> defect_classes();

struct Specimen {
  OpDef op;                          ///< of the built-in op: its contract and formula; the kernel is the specimen's
  int defect_class = 0;              ///< 0: a correct variant
  std::string what;                  ///< one line: what is wrong, or how the variant computes
  std::string regime;                ///< where it is visible, in words; of a correct variant what could deceive a judge
  Verdict due = Verdict::rounding;   ///< the verdict that names it exactly
  Verdict also = Verdict::rounding;  ///< another one that is right too; `due` if there is none
  std::string cause;                 ///< words of a right diagnosis, any of them, separated by |
  std::vector<Dtype> dtypes;         ///< storage types in which the values or the memory are wrong
  std::string form;                  ///< of a correct variant: the declared form that it computes; empty: the formula
  std::string equivalent;            ///< proof that the outputs are right everywhere, where that is so; empty otherwise
  /// Written when the rules stood, without a look at them. Of these `audit zoo` looks at the
  /// totals alone: no rule follows from one, and no other audit runs them.
  bool unseen = false;

  bool correct() const { return defect_class == 0; }
  const std::string& name() const { return op.signature.name; }
};

/// All specimens, by op; those that were written last come last. Names are unique.
std::span<const Specimen> specimens();
/// Kernels of fp64, which the built-in ops have not: a sample, scored by itself. Only `audit zoo` runs them.
std::span<const Specimen> specimens_in_fp64();
/// The op of a specimen of either, or null.
const OpDef* find_specimen_op(std::string_view name);

}  // namespace ampcheck::checks::zoo
