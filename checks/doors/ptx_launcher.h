// SPDX-License-Identifier: Apache-2.0
// A GPU kernel that runs on the CPU: PTX, or CUDA source that the user's own nvcc turns into PTX. A TOML file says how
// it is launched; to the rest of the checks it is a kernel of the C door. What the simulated GPU sees goes to
// launch_notes.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checks/doors/launcher.h"
#include "src/ptx/run.h"

namespace ampcheck::checks {

/// The program of a *.ptx or *.cu file, made when it is first asked for.
class PtxModule {
 public:
  /// `flags`: further ones for nvcc.
  PtxModule(std::string path, std::vector<std::string> flags) : path_(std::move(path)), flags_(std::move(flags)) {}
  /// Throws EnvironmentError where the file or nvcc is missing, Error for a text that is no PTX.
  const ptx::Program& program();

 private:
  std::string path_;
  std::vector<std::string> flags_;
  std::mutex mutex_;
  std::shared_ptr<const ptx::Program> program_;
};

/// The numbers between <<< and >>>.
struct PtxExtents {
  std::array<ArgumentValue, 3> grid, block;
  std::optional<ArgumentValue> shared;
};

struct PtxLaunchDescription {
  std::shared_ptr<PtxModule> module;
  LauncherDescription call;                   ///< kernels as symbols, arguments, workspaces
  std::vector<PtxExtents> extents;            ///< of each step
  std::vector<std::string> accumulates = {};  ///< tensors that hold something before the call
};

class PtxLauncher : public OpLauncher {
 public:
  /// `names` outlives the launcher.
  PtxLauncher(PtxLaunchDescription description, const ArgumentNames& names)
      : description_(std::move(description)), names_(names) {}

  void resolve() override;
  std::int32_t run(const ac_call& call) override;

 private:
  void launch(const ac_call& call);
  void launch_step(std::size_t step, const ArgumentContext& context, std::vector<ptx::Region> regions) const;
  void add_tensors(const ac_call& call, std::vector<ptx::Region>& regions) const;
  std::vector<std::uint8_t> parameters(const ptx::Routine& kernel,
                                       const std::vector<LauncherArgument::Value>& values) const;

  PtxLaunchDescription description_;
  const ArgumentNames& names_;
};

/// The PTX of a *.ptx or *.cu file. Throws EnvironmentError where it cannot be read, or as ptx_of_cuda.
std::string ptx_of_file(const std::string& path, const std::vector<std::string>& flags);
/// The PTX of CUDA source, by the user's nvcc. Throws EnvironmentError if there is none, or with what it says.
std::string ptx_of_cuda(const std::string& path, const std::vector<std::string>& flags);

}  // namespace ampcheck::checks
