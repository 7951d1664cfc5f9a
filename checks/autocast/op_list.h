// SPDX-License-Identifier: Apache-2.0
// Lists of ops with their autocast class: a user's own file, held against torch's lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/amp/autocast_versions.h"

namespace ampcheck::checks::autocast {

/// A user's list.
struct OpList {
  AutocastList list;               ///< those with a class
  std::vector<std::string> plain;  ///< ops without a class: which one they have is asked
  std::vector<std::string> order;  ///< all ops, as the file has them
};

/// Reads TOML ('fp32 = ["softmax", "exp"]', a table of ops by class), or lines "op class", "op,class" or "op" with #
/// for comments. Classes are torch's (lower_precision_fp, fp32, ...), or low, fp16, bf16 and none. Prefixes of names
/// ("aten::", "torch.nn.functional.") are dropped. Error with the line for what is neither, and for an op that is
/// listed twice with two classes.
OpList read_op_list(std::string_view text, const std::string& path);

/// How one list's class of an op relates to another's.
enum class Relation : std::uint8_t {
  same,
  alike,     ///< both compute in fp32, one by its dtype argument
  narrower,  ///< 16 bits where the other has fp32
  wider,     ///< fp32 where the other has 16 bits
  other,
};
/// "same", "alike", "narrower", "wider", "other".
const char* name(Relation relation);

struct Difference {
  std::string op;
  CastPolicy here = CastPolicy::unlisted, there = CastPolicy::unlisted;
  Relation relation = Relation::same;
};
/// Of the first list's class from the second's.
Relation relation(CastPolicy here, CastPolicy there);
/// Ops whose class differs, sorted: `both`: those that one list alone names, too.
std::vector<Difference> differences(const AutocastList& here, const AutocastList& there, bool both);

}  // namespace ampcheck::checks::autocast
