// SPDX-License-Identifier: Apache-2.0
// ampcheck.toml: its settings are those of commands and options that there are, each with the line that it comes from.
#include "tools/choose/config_file.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"
#include "tools/choose/command_line.h"
#include "tools/report/usage_error.h"

using namespace ampcheck;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tools::CommandLine kLine;
  try {
    for (const char* const profile : {"", "nightly"})
      for (const tools::ConfigSetting& setting :
           tools::parse_config(std::string(fuzz::text_of(data, size)), "ampcheck.toml", kLine.commands, profile)) {
        const auto command = std::ranges::find(kLine.commands, setting.command, &CLI::App::get_name);
        fuzz::require(command != kLine.commands.end() && (*command)->get_option_no_throw(setting.option) != nullptr,
                      "a setting is of an option that there is");
        fuzz::require(setting.origin.starts_with("ampcheck.toml:"), "a setting says its line");
      }
  } catch (const tools::UsageError& error) {
    fuzz::require(error.what()[0] == '[', "a refusal says where");
  }
  return 0;
}
