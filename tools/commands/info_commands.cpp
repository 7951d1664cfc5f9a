// SPDX-License-Identifier: Apache-2.0
// doctor and version: what the program knows of its machine and itself.
#include <fmt/format.h>

#include "checks/define/op_def.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

/// A thing that this build or machine leaves out, and why.
struct Skipped {
  std::string what, why;
};

std::vector<Skipped> skipped_things(const CudaFacts& cuda) {
  std::vector<Skipped> out;
  if (!cuda.usable) out.push_back({"--device cuda", cuda.reason});
  return out;
}

std::string doctor_text(const BuildFacts& build, const MachineFacts& machine, const CudaFacts& cuda) {
  std::string targets;
  for (const std::string& target : machine.simd_targets) targets += (targets.empty() ? "" : ", ") + target;
  std::string out = fmt::format("ampcheck {}, {}, {}\n", build.version, build.compiler,
                                build.cuda ? "CUDA " + build.cuda_version : std::string("without CUDA"));
  out += fmt::format("  processor   {}, {} thread{}\n", machine.cpu, machine.threads, machine.threads == 1 ? "" : "s");
  out += fmt::format("  SIMD        {} in use; this program and machine have {}\n", machine.simd, targets);
  out += fmt::format("  CUDA        build {}, driver {}\n", build.cuda ? build.cuda_version : "none",
                     cuda.driver.empty() ? "none" : "up to " + cuda.driver);
  for (const CudaDevice& device : cuda.devices)
    out += fmt::format("  device      {}, sm_{}{}, {:.0f} GiB\n", device.name, device.major, device.minor,
                       device.memory_gib);
  out += fmt::format("  ops         {}\n", checks::all_ops().size());
  for (const Skipped& item : skipped_things(cuda)) out += fmt::format("  skipped     {}: {}\n", item.what, item.why);
  return out + "  verdict     ready; kernels run on the CPU with bit-exact low-precision arithmetic" +
         (cuda.usable ? ", and on the CUDA device with --device cuda\n" : "\n");
}

}  // namespace

ExitCode doctor_command(const DoctorOptions& options) {
  const BuildFacts build = build_facts();
  const MachineFacts machine = machine_facts();
  const CudaFacts cuda = cuda_facts();
  if (!options.json) {
    write_stdout(doctor_text(build, machine, cuda));
    return ExitCode::passed;
  }
  Json out = {{"schema", "ampcheck.doctor/1"}, {"environment", environment_json(build, machine)}};
  out["cuda"] = {{"usable", cuda.usable}, {"reason", cuda.reason}, {"driver", cuda.driver}, {"devices", Json::array()}};
  for (const CudaDevice& d : cuda.devices)
    out["cuda"]["devices"].push_back(
        {{"name", d.name}, {"major", d.major}, {"minor", d.minor}, {"memory_gib", d.memory_gib}});
  out["ops"] = checks::all_ops().size();
  out["skipped"] = Json::array();
  for (const Skipped& item : skipped_things(cuda)) out["skipped"].push_back({{"what", item.what}, {"why", item.why}});
  write_stdout(json_text(out));
  return ExitCode::passed;
}

ExitCode version_command(const VersionOptions& options) {
  const BuildFacts build = build_facts();
  if (options.json) {
    write_stdout(json_text({{"schema", "ampcheck.version/1"},
                            {"version", build.version},
                            {"compiler", build.compiler},
                            {"cuda_build", build.cuda},
                            {"cuda_version", build.cuda_version}}));
  } else {
    write_stdout(fmt::format("ampcheck {} ({}, {})\n", build.version, build.compiler,
                             build.cuda ? "CUDA " + build.cuda_version : std::string("without CUDA")));
  }
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
