// SPDX-License-Identifier: Apache-2.0
// The launchers that a TOML file names: [forward], [backward] and [double_backward], with the arguments of each.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/doors/launcher.h"
#include "checks/doors/plugin.h"
#include "src/toml_file.h"

namespace ampcheck::checks {

/// Everything that the description and the kernels of one file point into.
struct LauncherOp {
  std::deque<std::string> strings;
  std::deque<std::vector<double>> others;
  std::vector<ac_input> inputs;
  std::vector<ac_output> outputs, saved;
  std::vector<ac_attribute> attributes;
  std::vector<ac_dim> dims;
  std::vector<ac_form> forms;
  std::vector<std::int32_t> storage;
  ac_contract contract = {};
  ac_math math = {};
  ac_op op = {};
  ac_plugin plugin = {};
  ac_double_backward second = {};
  ac_extension extension = {};
  ArgumentNames forward_names, backward_names, double_backward_names;
  std::unique_ptr<OpLauncher> forward, backward, double_backward;
  std::string kernel_file;  ///< PTX or CUDA source; empty: launchers of a library

  const char* keep(std::string text) { return strings.emplace_back(std::move(text)).c_str(); }
};

/// Storage types as a file spells them, from AC_FP32.
inline const std::vector<std::string> kLauncherFloats = {"fp64", "fp32", "fp16", "bf16", "e4m3fn", "e5m2"};

/// The text of a key that has to be there.
std::string required(const TomlFile& file, const TomlSection& section, const char* key, const char* want);

/// Whether a library is a kernel for device ptx: *.ptx or *.cu.
bool is_kernel_file(std::string_view path);

/// Reads the launchers of an op whose signature is known. Throws TomlError with the place of what is wrong.
void read_launchers(const TomlFile& file, const TomlSection& root, const OpSignature& signature, LauncherOp& out);

}  // namespace ampcheck::checks
