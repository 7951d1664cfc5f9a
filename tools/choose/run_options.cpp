// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/run_options.h"

#include "tools/choose/device_choice.h"
#include "tools/choose/option_parsing.h"
#include "tools/choose/sandbox_choice.h"
#include "tools/report/device_word.h"

namespace ampcheck::tools {

namespace {
constexpr std::array kDevices = {Named<Device>{"cpu", Device::cpu}, Named<Device>{"cuda", Device::cuda},
                                 Named<Device>{kSimulatedGpu, Device::cuda}};
constexpr std::array kIsolations = {Named<bool>{"worker", true}, Named<bool>{"none", false}};
}  // namespace

void add_device_option(CLI::App* command, Device& device) {
  each(command, "--device", "D", "cpu, cuda, or ptx: CUDA kernels on a simulated GPU (cpu)",
       [&device](const std::string& t) {
         device = choose("--device", t, kDevices);
         if (t == kSimulatedGpu) simulate_gpu();
       });
}

void add_jobs_option(CLI::App* command, int& jobs) {
  each(command, "--jobs,-j", "N", "cores to use (all)",
       [&jobs](const std::string& t) { jobs = static_cast<int>(parse_count("--jobs", t, 1, 4096)); });
}

void add_isolation_options(CLI::App* command, IsolationOptions& o, const char* what_ends) {
  each(command, "--isolation", "I",
       "worker (default): kernels of a library run in a process of their own. none: they run in this one, for a "
       "debugger",
       [&o](const std::string& t) { o.isolation = choose("--isolation", t, kIsolations); });
  each(command, "--timeout", "S", what_ends,
       [&o](const std::string& t) { o.timeout = static_cast<double>(parse_count("--timeout", t, 1, 1'000'000)); });
}

void add_sandbox_option(CLI::App* command) {
  add_flag(
      command, "--sandbox", [] { sandbox_libraries(); },
      "code of a library reads the system's libraries and itself alone, writes nothing, and has no network (Linux "
      "5.13)");
}

void add_run_options(CLI::App* command, RunningOptions& o) {
  add_device_option(command, o.device);
  add_jobs_option(command, o.jobs);
  add_isolation_options(command, o,
                        "seconds that the kernel of a case may take in a worker, and loading the library (60)");
  add_sandbox_option(command);
  add_flag(
      command, "--no-relations", [&o] { o.relations = false; },
      "judge values only; leave out the relations that must hold bit for bit");
  add_flag(command, "--as-written", o.as_written,
           "judge by the formula as it is written: no further form and no regrouping of it admits a number");
}

void add_lines_option(CLI::App* command) {
  add_flag(
      command, "--lines", [] { follow_lines_of_kernels(); },
      "of GPU kernels on device ptx, show what each source line does to the numbers: rounding, cancellation, overflow "
      "and underflow, beside a shadow in fp64");
}

void add_fuse_option(CLI::App* command) {
  add_flag(
      command, "--fuse", [] { fuse_products_of_kernels(); },
      "of GPU kernels on device ptx, run mul and add without .rn as one fma, as the assembler of a GPU may do. Without "
      "it they stay two operations");
}

void add_memory_option(CLI::App* command, RunningOptions& o) {
  each(command, "--memory", "SIZE",
       "memory for the cases that run at the same time, such as 8GB or 500MB (default 80 % of what is free). A larger "
       "case is judged in part, or skipped",
       [&o](const std::string& t) { o.memory = parse_size("--memory", t); });
}

void add_budget_options(CLI::App* command, RunningOptions& o) {
  add_memory_option(command, o);
  each(command, "--time-budget", "S",
       "seconds after which no further case starts. Of each op the cases that find most run first",
       [&o](const std::string& t) {
         o.time_budget = static_cast<double>(parse_count("--time-budget", t, 1, 1'000'000));
       });
}

}  // namespace ampcheck::tools
