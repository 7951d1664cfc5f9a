// SPDX-License-Identifier: Apache-2.0
// Writes an op of the user's own to begin with: a commented example that passes, the headers it needs, and how to build
// it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/error.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

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
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

void require_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto right = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 64 || !letter(name.front()) || !std::all_of(name.begin(), name.end(), right))
    throw UsageError("[new] got the name '" + name + "', want letters, digits and _, not beginning with a digit");
}

/// What one door writes and how it is built; my_op stands for the name everywhere.
struct Door {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;  ///< and the embedded text of each; the last one is shown
  std::vector<std::string> headers;
  std::string language, suffix, checked, features, build, check;
};

const Door& door_of(const std::string& name) {
  static const std::vector<Door> kDoors = {
      {"cpp",
       {{"my_op.cpp", "op.cpp"}},
       {"ampcheck_op.h", "call.h", "expr.h", "op.h", "storage_types.h"},
       "CXX",
       "cpp",
       "$<TARGET_FILE:my_op>",
       "target_compile_features(my_op PRIVATE cxx_std_20)",
       "c++ -std=c++20 -O2 -shared -fPIC -I . my_op.cpp -o libmy_op.so",
       "ampcheck check ./libmy_op.so"},
      {"c",
       {{"my_op.c", "op.c"}},
       {"ampcheck_op.h"},
       "C",
       "c",
       "$<TARGET_FILE:my_op>",
       "target_compile_features(my_op PRIVATE c_std_11)\ntarget_link_libraries(my_op PRIVATE m)",
       "cc -std=c11 -O2 -shared -fPIC -I . my_op.c -o libmy_op.so -lm",
       "ampcheck check ./libmy_op.so"},
      {"toml",
       {{"my_op.c", "launcher.c"}, {"my_op.toml", "launcher.toml"}},
       {},
       "C",
       "c",
       "${CMAKE_CURRENT_BINARY_DIR}/my_op.toml",
       "target_compile_features(my_op PRIVATE c_std_11)\ntarget_link_libraries(my_op PRIVATE "
       "m)\nconfigure_file(my_op.toml my_op.toml COPYONLY)  # beside the library",
       "cc -std=c11 -O2 -shared -fPIC my_op.c -o libmy_op.so -lm",
       "ampcheck check my_op.toml"}};
  for (const Door& door : kDoors)
    if (door.name == name) return door;
  throw Error("[new] no door " + name);
}

void write_named(const std::string& name, const std::string& file, const std::string& text) {
  write_file((fs::path(name) / replaced(file, "my_op", name)).string(), replaced(text, "my_op", name));
}

}  // namespace

ExitCode new_command(const NewOptions& options) {
  if (options.what.size() != 2 || options.what.front() != "op")
    throw UsageError("[new] got '" + options.what.front() + "', want op NAME, as: ampcheck new op my_op");
  const std::string& name = options.what.back();
  require_name(name);
  if (fs::exists(name)) throw UsageError("[new] got '" + name + "', which is there already, want a new name");
  std::error_code failed;
  fs::create_directories(name, failed);
  if (failed) throw WriteError("[new] cannot make folder '" + name + "': " + failed.message());

  const Door& door = door_of(options.door);
  for (const auto& [file, text] : door.files) write_named(name, file, text_of(text));
  std::string cmake = replaced(text_of("CMakeLists.txt"), "@language@", door.language);
  cmake = replaced(replaced(replaced(cmake, "@suffix@", door.suffix), "@checked@", door.checked), "@features@",
                   door.features);
  write_named(name, "CMakeLists.txt", cmake);
  if (!door.headers.empty()) fs::create_directories(fs::path(name) / "ampcheck", failed);
  for (const std::string& header : door.headers)
    write_file((fs::path(name) / "ampcheck" / header).string(), text_of(header));

  const std::string source = replaced(door.files.back().first, "my_op", name),
                    build = replaced(door.build, "my_op", name);
  const std::string check = replaced(door.check, "my_op", name);
  if (options.json)
    write_stdout(json_text(
        {{"schema", "ampcheck.new/1"}, {"folder", name}, {"source", source}, {"build", build}, {"check", check}}));
  else
    write_stdout(
        fmt::format("{}/{} is an op that passes. Next:\n  cd {}\n  {}\n  {}\n", name, source, name, build, check));
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
