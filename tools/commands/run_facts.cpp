// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_facts.h"

#include "checks/doors/plugin.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/ptx/gpu.h"
#include "tools/choose/device_choice.h"
#include "tools/report/environment.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

void require_reports(const std::vector<ReportFile>& reports, bool json, std::vector<WrittenFile> others) {
  for (const ReportFile& file : reports) others.emplace_back("-o", file.path);
  require_apart(others);
  for (const ReportFile& file : reports) {
    if (json && file.path == "-") throw UsageError("[-o] got 'github:-' and --json, want one on standard output");
    require_writable(file.path);
  }
}

RunFacts begin_run(const CaseOptions& cases, const RunningOptions& running) {
  RunFacts facts{.build = build_facts(),
                 .machine = {},
                 .device = running.device,
                 .data = cases.data,
                 .inputs = cases.inputs,
                 .as_written = running.as_written};
  for (const checks::OpDef* const op : cases.plugin_ops)
    if (!op->source.file.empty()) facts.sources[op->signature.name] = op->source;
  facts.device_text = require_device(running.device);
  if (running.device == Device::cpu && !cases.plugin_ops.empty() &&
      !checks::simulated_kernel(cases.plugin_ops.front()->plugin).empty())
    facts.device_text = "the kernel runs on a simulated GPU (device ptx)";
  if (running.device == Device::cuda && ptx::simulates_gpu() && cases.plugin_ops.empty() && !facts.build.cuda)
    throw EnvironmentError(
        "[--device] got ptx, but this program was built without CUDA and has no kernels for it; want a library that "
        "launches its own (ampcheck explain gpu-kernels)");
  if (running.jobs != 0) set_threads(running.jobs);
  facts.machine = machine_facts();  // with that number of threads
  return facts;
}

}  // namespace ampcheck::tools
