// SPDX-License-Identifier: Apache-2.0
#include "checks/explain/launch_formats.h"

#include "src/launch_facts.h"

namespace ampcheck::checks {

namespace {

struct Formats {
  bool known = false, fp16 = false, bf16 = false;
};

Formats formats_of(LaunchFact::Kind kind) {
  Formats out;
  for (const LaunchFact& fact : launch_facts())
    if (fact.kind == kind) {
      out.known = true;
      out.fp16 |= fact.fp16;
      out.bf16 |= fact.bf16;
    }
  return out;
}

}  // namespace

bool may_keep(Dtype format) {
  const Formats has = formats_of(LaunchFact::Kind::formats);
  if (!has.known) return true;
  if (format == Dtype::fp16) return has.fp16;
  // Bits of bf16 are cut off an fp32 by instructions on integers, too.
  return format != Dtype::bf16 || has.bf16 || !has.fp16;
}

std::string rounded_on_the_way(Dtype storage) {
  const Formats rounds = formats_of(LaunchFact::Kind::narrowed);
  if (bytes(storage) < 4) return "";
  return rounds.fp16 && rounds.bf16 ? "fp16 or bf16" : rounds.fp16 ? "fp16" : rounds.bf16 ? "bf16" : "";
}

}  // namespace ampcheck::checks
