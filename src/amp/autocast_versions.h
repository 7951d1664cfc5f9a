// SPDX-License-Identifier: Apache-2.0
// Autocast's lists of several releases of torch. An op's class changes between them: rms_norm runs in fp32 under CUDA's
// autocast of one release and in 16 bits under that of an older one.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/amp/autocast_tables.h"

namespace ampcheck {

/// Classes of operators by name, "softmax.int" or "linear": of one torch on one device, or of a user.
class AutocastList {
 public:
  /// "torch 2.15.0, cuda", or a file's name.
  std::string title;
  std::map<std::string, CastPolicy, std::less<>> ops;

  /// Of an operator's overload, or of its name alone ("softmax") if all listed overloads agree; else unlisted.
  CastPolicy policy(std::string_view op) const;
  /// Whether it is there, with its overload or without.
  bool lists(std::string_view op) const;
  /// The operators of a class, sorted.
  std::vector<std::string_view> of(CastPolicy policy) const;
};

/// Releases whose lists of a device are known, oldest first; the last one is kAutocastTablesVersion's.
std::span<const std::string_view> autocast_releases(AutocastDevice device);
/// The lists of a release ("2.6.0", "2.6" for the newest 2.6 that is known, empty for the newest of all) on a device.
/// Error for one that is not known.
AutocastList autocast_list(std::string_view release, AutocastDevice device);
/// The class of an op definition: of torch's operator that it is, or of the one that this inherits its casts from; none
/// of torch's: its own.
CastPolicy policy_of(const AutocastList& list, AutocastDevice device, const OpSignature& op);
/// What a class does, in a few words.
const char* rule_of(CastPolicy policy);
/// What to call in place of a banned operator; empty for one that is not banned anywhere.
std::string_view safe_form(std::string_view op);

}  // namespace ampcheck
