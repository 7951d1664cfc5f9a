// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include <fmt/format.h>

#include <algorithm>

#include "checks/doors/ptx_launcher.h"
#include "checks/doors/toml_launchers.h"
#include "src/ptx/program.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

bool lists_kernels(const ListOptions& options) {
  return options.launch.empty() && !options.cases &&
         std::any_of(options.words.begin(), options.words.end(), [](const std::string& word) {
           return checks::is_kernel_file(word) && word.find('@') == std::string::npos;
         });
}

/// What a launch file needs to know of a file of kernels, and whether device ptx runs them.
ExitCode list_kernels(const ListOptions& options) {
  if (options.words.size() != 1)
    throw UsageError("[list] got " + std::to_string(options.words.size()) +
                     " words with a kernel file, want the file alone, or --launch launch.toml");
  const std::string& path = options.words.front();
  std::vector<ptx::KernelFacts> kernels;
  try {
    kernels = ptx::kernels_of(ptx::parse(checks::ptx_of_file(path, {}), path));
  } catch (const ptx::PtxError& error) {
    throw UsageError(error.what());
  }
  Json out = {{"schema", "ampcheck.kernels/1"}, {"kernels", Json::array()}};
  const Style style = stdout_style();
  std::size_t width = 6;
  for (const ptx::KernelFacts& kernel : kernels) width = std::max(width, kernel.name.size());
  std::string text = fmt::format("{}{:<{}}  bytes of its arguments{}\n", style.bold, "kernel", width, style.reset);
  for (const ptx::KernelFacts& kernel : kernels) {
    out["kernels"].push_back({{"kernel", kernel.name},
                              {"parameters", kernel.parameters},
                              {"runs", kernel.why_not.empty()},
                              {"why_not", kernel.why_not}});
    text += fmt::format("{:<{}}  {}\n", kernel.name, width, fmt::join(kernel.parameters, " "));
    if (!kernel.why_not.empty()) text += fmt::format("  not run: {}\n", kernel.why_not);
  }
  write_stdout(options.json ? json_text(out) : text);
  return kernels.empty() ? ExitCode::nothing_ran : ExitCode::passed;
}

}  // namespace ampcheck::tools
