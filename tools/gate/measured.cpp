// SPDX-License-Identifier: Apache-2.0
#include "tools/gate/measured.h"

#include <algorithm>
#include <filesystem>

#include "checks/doors/toml_launchers.h"
#include "src/digest.h"
#include "src/file_bytes.h"
#include "tools/report/environment.h"

namespace ampcheck::tools {

namespace {

/// Of a kernel's source or PTX and the file that launches it, KERNEL@LAUNCH, the kernel.
std::string file_of(const std::string& library) {
  const std::string kernel = library.substr(0, library.find('@'));
  return checks::is_kernel_file(kernel) ? kernel : library;
}

}  // namespace

Measured measured_here(const checks::OpDef& op) {
  const BuildFacts build = build_facts();
  Measured out{build.version, build.compiler, machine_facts().cpu, {}, {}};
  if (op.plugin.empty()) return out;
  const std::string bytes = read_bytes(file_of(op.plugin), "library");
  out.library = digest_of(bytes).str();
  out.file = file_name_of(op.plugin);
  out.compiler = compiler_named_in(bytes);
  return out;
}

std::string file_name_of(const std::string& library) {
  return std::filesystem::path(file_of(library)).filename().string();
}

std::string compiler_named_in(std::string_view bytes) {
  constexpr std::size_t kLongest = 200;
  for (const std::string_view begin : {"GCC: (", "clang version "})
    for (std::size_t at = bytes.find(begin); at != std::string_view::npos; at = bytes.find(begin, at + 1)) {
      const std::string_view text = bytes.substr(at, bytes.substr(at, kLongest).find('\0'));
      const bool plain = std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
      if (plain && text.find_first_of("0123456789") != std::string_view::npos) return std::string(text);
    }
  return "";
}

}  // namespace ampcheck::tools
