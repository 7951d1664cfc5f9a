// SPDX-License-Identifier: Apache-2.0
// A TOML file that describes an op whose kernels are launchers of an existing shared library: no code is written for
// ampcheck.
//
//   library = "./libmy_norm.so"                      # beside this file
//   name = "my_norm"
//   formula = "y = x * rsqrt(mean(x^2, -1) + eps) * weight"
//   dims = { N = [5, 64, 2], D = { samples = [7, 129, 1025], least = 1 } }
//   inputs = { x = "N D", weight = { dims = "D", role = "weight" } }
//   outputs = { y = "N D" }
//   attributes = { eps = 1e-6 }
//   dtypes = { fp32 = 0, bf16 = 2 }
//   [forward]
//   symbol = "launch_my_norm"
//   arguments = ["const void* x", "const void* weight", "void* y", "int64_t N", "int64_t D", "float eps", "int dtype",
//   "cudaStream_t stream"] [backward]
//   ...
//   [[backward.then]]                                # what is launched behind it, with the same workspaces
//   ...
//   [double_backward]                                # if there is one: its tensors are those of the backward,
//   "dgrad_x" and "ddy"
//   ...
//
// It becomes the description of a C plug-in (src/api/ampcheck/ampcheck_op.h), read by the same code, whose kernels call
// through libffi. Arguments: checks/doors/launcher_argument.h.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checks/define/op_def.h"

namespace ampcheck::checks {

/// An op read from TOML, and what finds its library and symbols.
struct TomlOp {
  OpDef op;
  std::optional<OpDef> backward_op;  ///< the backward as an op, where the file has a double backward
  std::function<void()> resolve;     ///< EnvironmentError without the library, PluginError without a symbol
};

/// `path` is the file as the user wrote it: it stands in messages, and the library lies relative to its folder. Nothing
/// is loaded. Throws PluginError "[my_op.toml:12:5] what, got X, want Y".
/// `kernel_file`: PTX or CUDA source to run instead of the file's library.
TomlOp op_of_toml(const std::string& text, const std::string& path, const std::string& kernel_file = {});

/// The kernel that the file's "library" is, PTX or CUDA source; empty where it is none.
std::string kernel_named_in(const std::string& text, const std::string& path);

}  // namespace ampcheck::checks
