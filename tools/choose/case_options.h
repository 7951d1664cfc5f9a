// SPDX-License-Identifier: Apache-2.0
// Options that say which ops and cases a command is about. Groups that several commands share; each command adds its
// own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks/data/call_data.h"
#include "checks/data/extent_cases.h"
#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "src/dtype.h"
#include "tools/report/usage_error.h"

namespace CLI {
class App;
}

namespace ampcheck::tools {

/// Of every command.
struct CommonOptions {
  std::string verb = {};  ///< name of the command, for messages
  bool json = false;      ///< results as JSON on standard output
};

/// The words that name ops, and the library that they may begin with.
struct OpOptions : CommonOptions {
  std::vector<std::string> words = {};                ///< selectors, without the library once it is open
  std::string launch = {};                            ///< a TOML file: how the kernel among the words is launched
  std::vector<const checks::OpDef*> plugin_ops = {};  ///< of the library among the words; empty: the built-in ops
  bool variants = false;                              ///< the variants of the library's ops too
  /// What is wrong with ops of the library that were asked for: the others are looked at.
  std::vector<std::string> refused = {};
};

/// Shapes that `--shapes` admits.
struct ShapeFilter {
  enum class Kind { all, first, standard, extents, ranges } kind = Kind::all;
  Dims extents = {};  ///< "N=64,D=1025": these extents instead of the generated ones
  std::map<std::string, checks::ExtentRange> ranges = {};  ///< "D=1..4096": one case for each; empty: every dimension
};

/// Whether to check at the tensors of real runs.
enum class RealTensors {
  found,  ///< too, where their data is found
  on,     ///< too; no data is an error
  only,
  off,
};

/// Which of the ops' cases.
struct CaseOptions : OpOptions {
  std::vector<Dtype> dtypes = {};  ///< empty: all of the op's contract
  std::uint64_t seeds = 1;         ///< seeds first_seed, first_seed + 1, ...
  std::uint64_t first_seed = 1;
  ShapeFilter shapes = {};
  checks::CaseSet set = checks::CaseSet::standard;
  RealTensors real = RealTensors::found;
  std::string data = {};                                ///< folder of their data; empty: the installed one
  std::string inputs = {};                              ///< file or folder of the user's own inputs and cotangents
  std::shared_ptr<const CallData> call_data = nullptr;  ///< what data and inputs name, once open_data() read it
};

/// What --variants is, of check and gate.
inline constexpr char kVariants[] =
    "of a library's op its variants too, the kernels among which an autotuner picks, and which of them give the same "
    "bits";

void add_dtype_option(CLI::App* command, std::vector<Dtype>& dtypes);
/// --dtype, --seeds, --seed, --regimes.
void add_set_options(CLI::App* command, CaseOptions& o);
/// These, and --shapes, --real, --data.
void add_case_options(CLI::App* command, CaseOptions& o);
void add_data_option(CLI::App* command, std::string& data);
void add_inputs_option(CLI::App* command, CaseOptions& o);
void add_selectors(CLI::App* command, CaseOptions& o);

/// UsageError for options that exclude each other.
void require_consistent(const CaseOptions& o);

}  // namespace ampcheck::tools
