// SPDX-License-Identifier: Apache-2.0
// Writes an op of the user's own to begin with: a commented example that passes, the headers it needs, and how to build it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "src/error.h"
#include "tools/commands.h"
#include "tools/json.h"
#include "tools/output.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

struct Embedded {
  const char* name;
  const char* text;
};
constexpr Embedded kFiles[] = {
#include "ampcheck_templates.inc"
};

std::string text_of(std::string_view name) {
  for (const Embedded& file : kFiles)
    if (file.name == name) return file.text;
  throw Error("[new] no embedded file " + std::string(name));
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

void require_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto right = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 64 || !letter(name.front()) || !std::all_of(name.begin(), name.end(), right))
    throw UsageError("[new] got the name '" + name + "', want letters, digits and _, not beginning with a digit");
}

}  // namespace

ExitCode new_command(const Options& options) {
  if (options.words.size() != 2 || options.words.front() != "op") throw UsageError("[new] got '" + options.words.front() + "', want op NAME");
  const std::string& name = options.words.back();
  require_name(name);
  const bool c = options.door == "c";
  if (fs::exists(name)) throw UsageError("[new] got '" + name + "', which is there already, want a new name");
  std::error_code failed;
  fs::create_directories(fs::path(name) / "ampcheck", failed);
  if (failed) throw WriteError("[new] cannot make folder '" + name + "': " + failed.message());

  const std::string source = name + (c ? ".c" : ".cpp");
  std::string cmake = replaced(text_of("CMakeLists.txt"), "@language@", c ? "C" : "CXX");
  cmake = replaced(replaced(cmake, "@suffix@", c ? "c" : "cpp"), "@features@",
                   c ? "target_compile_features(my_op PRIVATE c_std_11)\ntarget_link_libraries(my_op PRIVATE m)"
                     : "target_compile_features(my_op PRIVATE cxx_std_20)");
  write_file((fs::path(name) / source).string(), replaced(text_of(c ? "op.c" : "op.cpp"), "my_op", name));
  write_file((fs::path(name) / "CMakeLists.txt").string(), replaced(cmake, "my_op", name));
  for (const char* header : {"ampcheck_op.h", "expr.h", "op.h", "storage_types.h"})
    if (!c || std::string_view(header) == "ampcheck_op.h") write_file((fs::path(name) / "ampcheck" / header).string(), text_of(header));

  const std::string build = c ? fmt::format("cc -std=c11 -O2 -shared -fPIC -I . {}.c -o lib{}.so -lm", name, name)
                              : fmt::format("c++ -std=c++20 -O2 -shared -fPIC -I . {}.cpp -o lib{}.so", name, name);
  const std::string check = fmt::format("ampcheck check ./lib{}.so", name);
  if (options.json) write_stdout(json_text({{"schema", "ampcheck.new/1"}, {"folder", name}, {"source", source}, {"build", build}, {"check", check}}));
  else write_stdout(fmt::format("{}/{} is an op that passes. Next:\n  cd {}\n  {}\n  {}\n", name, source, name, build, check));
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
