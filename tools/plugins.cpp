// SPDX-License-Identifier: Apache-2.0
#include "tools/plugins.h"

#include <algorithm>

#include "checks/plugin.h"

namespace ampcheck::tools {

bool is_library(std::string_view word) {
  if (word.find('(') != std::string_view::npos) return false;
  return word.find('/') != std::string_view::npos || word.ends_with(".so") || word.ends_with(".dylib") || word.find(".so.") != std::string_view::npos;
}

void open_plugin(Options& options) {
  const auto libraries = std::count_if(options.words.begin(), options.words.end(), is_library);
  if (libraries == 0) return;
  if (libraries > 1 || !is_library(options.words.front()))
    throw UsageError("[" + options.verb + "] got " + std::to_string(libraries) + " shared librar" + (libraries == 1 ? "y" : "ies") +
                     " among other words, want one, before its selectors");
  try {
    for (const checks::OpDef& op : checks::load_plugin(options.words.front()).ops) options.plugin_ops.push_back(&op);
  } catch (const checks::PluginError& error) {
    throw UsageError(error.what());
  }
  options.words.erase(options.words.begin());
}

std::string shell_word(std::string_view word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::string_view("_-./+@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace ampcheck::tools
