// SPDX-License-Identifier: Apache-2.0
// A shared library among the words of a command line: its ops are the ones that the command is about.
#pragma once

#include <string_view>

#include "tools/choose/case_options.h"

namespace ampcheck::tools {

/// Whether a word is meant as a library or a TOML file that names one: a path, a *.so or a *.toml, and no case name.
bool is_library(std::string_view word);

/// Takes a library, which stands first among the words, and loads it: options.plugin_ops are its ops afterwards. Throws
/// UsageError for a description that is none, EnvironmentError for a library that cannot be loaded.
void open_plugin(OpOptions& options);

/// Where a library alone was given and has one op: that op is the selector. UsageError "[verb] got no op" with its ops
/// if it has several.
void take_only_op(OpOptions& options);

/// The formula of a user's op is certified before it judges: throws UsageError unless its adjoint agrees with
/// differences in 100 digits, and every form with the first. An op without a formula passes: it is judged by itself.
void require_certified(const checks::OpDef& op);

}  // namespace ampcheck::tools
