// SPDX-License-Identifier: Apache-2.0
// Torch's lists as `autocast lists` and `audit autocast` name them.
#pragma once

#include <optional>
#include <string>

#include "src/amp/autocast_versions.h"

namespace ampcheck::tools {

/// "cuda", ...; empty: cuda. UsageError for another word.
AutocastDevice list_device(const std::string& flag, const std::string& word);
/// A release's lists on a device; empty: the newest. UsageError for one that is not known.
AutocastList torch_list(const std::string& release, AutocastDevice device);

/// One of torch's lists by a word: "cpu", "2.6", "2.6/cpu".
struct NamedList {
  AutocastList list;
  AutocastDevice device = AutocastDevice::cuda;
};
/// Nothing for a word that has not this form; UsageError for one that has and names none. Empty parts are `release` and
/// `device`.
std::optional<NamedList> named_list(const std::string& word, const std::string& release, const std::string& device);

}  // namespace ampcheck::tools
