// SPDX-License-Identifier: Apache-2.0
// The parser of the whole command line, built from the options of each command.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "tools/choose/command_list.h"
#include "tools/choose/options.h"

namespace ampcheck::tools {

/// A parser with its options; the parser points into them.
class CommandLine {
 public:
  CommandLine();

  CLI::App app;
  /// The options of a command, by its place in command_rows().
  AnyOptions options_of(std::size_t command) const { return taken_.at(command)(); }
  template <class O>
  O& options() {
    return *std::get<std::unique_ptr<O>>(all_);
  }
  /// Of the commands, in the order of command_rows().
  std::vector<CLI::App*> commands;

 private:
  template <class Variant>
  struct Owned;
  template <class... O>
  struct Owned<std::variant<O...>> {
    using Type = std::tuple<std::unique_ptr<O>...>;
  };
  template <class O>
  void add();

  Owned<AnyOptions>::Type all_;
  std::vector<std::function<AnyOptions()>> taken_;
};

}  // namespace ampcheck::tools
