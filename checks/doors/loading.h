// SPDX-License-Identifier: Apache-2.0
// Around whatever runs code of a library for the first time: its initialisers and its description. They may end the
// process, never return, or leave the thread in another state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checks/doors/call_state.h"
#include "checks/doors/plugin.h"

namespace ampcheck::checks {

/// What a library says of itself in another process, which loaded it. Its kernels are none of this process: they return
/// an error until others take their place.
struct OutsideDescription {
  const ac_plugin* plugin = nullptr;  ///< to the end of this process; null of a TOML file, whose kernels are there
  std::vector<RefusedOp> refused;
  std::string left;  ///< as of LoadingHooks::after
};

/// Of a program that watches how libraries are loaded.
struct LoadingHooks {
  /// Before a library's file is opened; it may throw, and then nothing is opened.
  std::function<void(const std::string& path)> before;
  /// Afterwards. `left`: what of the thread's state the library had changed, in words; empty: nothing.
  std::function<void(const std::string& path, const std::string& left)> after;
  /// Asks another process for the description of a library, which is then not opened here. Throws what load_plugin()
  /// would. Null, or nothing: this process opens it.
  std::function<std::optional<OutsideDescription>(const std::string& path)> outside = nullptr;
  /// Puts kernels that run in another process in the place of those of a library that was described outside. Null: such
  /// a library is described there and opened here, where its kernels are to run.
  std::function<void(const std::string& path, std::vector<OpDef>& ops)> kernels = nullptr;
  bool keeps_state = false;  ///< the thread stays as the library left it: of a process that runs nothing but kernels
};
/// From now on no library is opened in this process: EnvironmentError with the reason. An empty one ends that.
void refuse_to_open(std::string why);
/// Set once, before the first load.
void watch_loading(LoadingHooks hooks);
/// What `outside` says, between `before` and `after`; nothing where kernels that are to run would run here.
std::optional<OutsideDescription> described_outside(const std::string& path, Opening opening);
/// Of ops that were described outside and are to run.
void run_outside(const std::string& path, Opening opening, std::vector<OpDef>& ops);

/// Lives while a library is opened and describes itself. Its end puts the state of the thread back.
class Loading {
 public:
  explicit Loading(std::string path);
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

 private:
  std::string path_;
  CallState state_;
};

}  // namespace ampcheck::checks
