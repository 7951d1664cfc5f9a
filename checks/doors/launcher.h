// SPDX-License-Identifier: Apache-2.0
// A launcher that a shared library has already, called through libffi with the arguments that a TOML file lists. To the
// rest of the checks it is a kernel of the C door.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checks/doors/launcher_argument.h"

namespace ampcheck::checks {

/// A shared library that is opened when a symbol is first asked for: describing its op runs nothing of it.
class LauncherLibrary {
 public:
  explicit LauncherLibrary(std::string path) : path_(std::move(path)) {}
  /// Throws EnvironmentError if the library cannot be loaded, Error if it has no such symbol.
  void* symbol(const std::string& name);

 private:
  std::string path_;
  std::mutex mutex_;
  void* handle_ = nullptr;
};

/// One function or kernel that a pass calls.
struct LauncherStep {
  std::map<std::int32_t, std::string> symbols;  ///< by storage type, AC_FP32, ...; 0: of any
  std::vector<LauncherArgument> arguments;
  bool returns_status = false;  ///< an int, 0 is success; else void

  const std::string& symbol(std::int32_t storage) const {
    const auto own = symbols.find(storage);
    return own != symbols.end() ? own->second : symbols.at(0);
  }
};

/// Scratch memory of a pass, which all of its steps share.
struct LauncherWorkspace {
  std::string name;
  ArgumentValue bytes;
  bool zeroed = false;  ///< otherwise it holds NaNs
};

struct LauncherDescription {
  std::shared_ptr<LauncherLibrary> library;
  std::vector<LauncherStep> steps;  ///< in their order, at least one
  std::vector<LauncherWorkspace> workspaces;
};

/// What a pass of an op calls, from several threads at a time.
class OpLauncher {
 public:
  OpLauncher() = default;
  virtual ~OpLauncher() = default;
  OpLauncher(const OpLauncher&) = delete;
  OpLauncher& operator=(const OpLauncher&) = delete;
  /// Finds everything that a call needs. Throws EnvironmentError or Error.
  virtual void resolve() = 0;
  /// As ac_kernel: 0, or a code after host->set_error.
  virtual std::int32_t run(const ac_call& call) = 0;
};

/// A launcher of a library.
class Launcher : public OpLauncher {
 public:
  /// `names` outlives the launcher.
  Launcher(LauncherDescription description, const ArgumentNames& names);
  ~Launcher() override;

  /// Throws as LauncherLibrary::symbol does.
  void resolve() override;
  std::int32_t run(const ac_call& call) override;

 private:
  struct Interface;
  std::int32_t call_steps(const ac_call& call);
  std::int32_t call_step(std::size_t step, const ArgumentContext& context);

  LauncherDescription description_;
  const ArgumentNames& names_;
  std::vector<std::unique_ptr<Interface>> interfaces_;  ///< of each step
};

}  // namespace ampcheck::checks
