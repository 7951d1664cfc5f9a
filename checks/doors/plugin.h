// SPDX-License-Identifier: Apache-2.0
// Ops of a user's shared library (src/api/ampcheck/ampcheck_op.h): each becomes an OpDef and takes the road of a
// built-in op.
#pragma once

#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/api/ampcheck/ampcheck_op.h"
#include "src/error.h"

namespace ampcheck::checks {

/// The library is there, but what it describes is no op: "[libmy_op.so: op 'my_op', input 2] dims, got X, want Y".
struct PluginError : Error {
  using Error::Error;
};

/// A kernel threw or returned a code that is not 0. In a check it becomes a finding of its case.
struct KernelError : Error {
  using Error::Error;
};

/// An op that a library describes and that is no valid one.
struct RefusedOp {
  std::string name;  ///< empty if even that is none
  std::string why;   ///< with the place
  int index = 0;     ///< among the library's ops
};

struct Plugin {
  std::string path;  ///< as the user wrote it: goes into replay lines
  std::vector<OpDef> ops;
  std::vector<RefusedOp> refused = {};
  const ac_plugin* description = nullptr;  ///< of a library that was opened; null of a TOML file
};

/// Whether kernels are to be called. A TOML file is enough to describe its op: its library is then not opened. `apart`:
/// by others, who put theirs in the place of the library's; without LoadingHooks::outside it is `run`.
enum class Opening { describe, apart, run };

/// Loads a library, or the library of a TOML file (checks/doors/launcher_toml.h), for the life of the process; a second
/// call with the same path and opening gives the same object. Loading runs its static initialisers and nothing of its
/// kernels. Throws EnvironmentError if it cannot be loaded, PluginError if it describes no valid ops.
const Plugin& load_plugin(const std::string& path, Opening opening = Opening::run);

/// The file of PTX or CUDA source that device ptx runs for such a path, in the process that judges: that of
/// "softmax.cu@launch.toml", or the "library" of a TOML file. Empty: there is none.
std::string simulated_kernel(const std::string& path);

/// The ops of a description. `where` names the library in messages. Every field is validated and every form recorded at
/// the first sample shape, with and without the optional inputs. Throws PluginError; with `refused`, of a single op
/// only if no other is valid.
std::vector<OpDef> ops_of(const ac_plugin* plugin, const std::string& where, std::vector<RefusedOp>* refused = nullptr);

}  // namespace ampcheck::checks
