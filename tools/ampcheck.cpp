// SPDX-License-Identifier: Apache-2.0
// The ampcheck program: reads the command line, runs one verb, and says how it ended by the exit code.
#include <hwy/highway.h>
#include <hwy/nanobenchmark.h>

#include <csignal>
#include <exception>

#include "checks/doors/loading.h"
#include "checks/doors/plugin.h"
#include "src/cpu_check.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/sandbox_choice.h"
#include "tools/commands/audited_library.h"
#include "tools/commands/commands.h"
#include "tools/report/foreign_file.h"
#include "tools/report/output.h"
#include "tools/workers/child.h"
#include "tools/workers/isolation.h"
#include "tools/workers/runner.h"

/// The signals of a kernel are findings of the supervisor, so a sanitizer leaves them alone.
#define AMPCHECK_SIGNALS_LEFT_ALONE "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0"
#ifdef __SANITIZE_ADDRESS__
extern "C" const char* __asan_default_options() { return AMPCHECK_SIGNALS_LEFT_ALONE; }
#endif
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_options() { return AMPCHECK_SIGNALS_LEFT_ALONE; }
#endif

// Highway 1.0.3 measures the timer of its own benchmarks whenever the library is loaded: 2.4 ms, a third of what the
// start of this program took, and kernels of a library start it often. Nothing here asks for that timer. The loader
// takes the program's function in place of the library's.
#if HWY_MAJOR == 1 && HWY_MINOR == 0 && HWY_PATCH == 3
uint64_t hwy::platform::TimerResolution() { return 1; }
#endif

namespace {

using namespace ampcheck;
using namespace ampcheck::tools;

/// Of a command whose words may begin with a library: opens it, and says what of it is left out.
template <class O>
ExitCode with_library(O& options, ExitCode (*command)(const O&)) {
  open_plugin(options);
  for (const std::string& why : options.refused)
    write_stderr("ampcheck: " + why + "\nampcheck: the other ops of the library are looked at\n");
  const ExitCode code = command(options);
  const bool ended = code == ExitCode::passed || code == ExitCode::findings || code == ExitCode::nothing_ran;
  return !options.refused.empty() && ended ? ExitCode::usage : code;
}

struct RunCommand {
  ExitCode operator()(ListOptions& o) const {
    return lists_kernels(o) ? list_kernels(o) : with_library(o, list_command);
  }
  ExitCode operator()(CheckOptions& o) const { return with_library(o, check_command); }
  ExitCode operator()(ReplayOptions& o) const { return with_library(o, replay_command); }
  ExitCode operator()(CertifyOptions& o) const { return with_library(o, certify_command); }
  ExitCode operator()(ContractOptions& o) const { return with_library(o, contract_command); }
  ExitCode operator()(FormatsOptions& o) const { return formats_command(o); }
  ExitCode operator()(MmaOptions& o) const { return mma_command(o); }
  ExitCode operator()(ExplainOptions& o) const { return explain_command(o); }
  ExitCode operator()(NewOptions& o) const { return new_command(o); }
  ExitCode operator()(CompareOptions& o) const { return compare_command(o); }
  ExitCode operator()(KernelGateOptions& o) const { return with_library(o, gate_command); }
  ExitCode operator()(AcceptOptions& o) const { return accept_command(o); }
  ExitCode operator()(ReviewOptions& o) const { return review_command(o); }
  ExitCode operator()(MutateOptions& o) const { return mutate_command(o); }
  ExitCode operator()(MergeOptions& o) const { return merge_command(o); }
  ExitCode operator()(ConfigOptions& o) const { return config_command(o); }
  ExitCode operator()(CompletionOptions& o) const { return completion_command(o); }
  ExitCode operator()(AuditOptions& o) const { return audit_command(o); }
  ExitCode operator()(TrainOptions& o) const { return train_command(o); }
  ExitCode operator()(TraceOptions& o) const { return trace_command(o); }
  ExitCode operator()(DiagnoseOptions& o) const { return diagnose_command(o); }
  ExitCode operator()(AutocastListsOptions& o) const { return autocast_command(o); }
  ExitCode operator()(FactsOptions& o) const { return facts_command(o); }
  ExitCode operator()(MemoryOptions& o) const { return memory_command(o); }
  ExitCode operator()(DoctorOptions& o) const { return doctor_command(o); }
  ExitCode operator()(VersionOptions& o) const { return version_command(o); }
};

/// Thrown where a library is about to be loaded into the process that reports.
struct LibraryAhead {
  std::string path;
};

IsolationOptions isolation_of(const AnyOptions& options) {
  return std::visit(
      []<class O>(const O& o) {
        if constexpr (std::is_base_of_v<IsolationOptions, O>)
          return static_cast<const IsolationOptions&>(o);
        else
          return IsolationOptions{};
      },
      options);
}

Device device_of(const AnyOptions& options) {
  return std::visit(
      []<class O>(const O& o) {
        if constexpr (requires { requires std::is_same_v<decltype(o.device), Device>; })
          return o.device;
        else
          return Device::cpu;
      },
      options);
}

/// The command in a child, since it loads that library; if the library ends the child, that is a finding.
ExitCode run_apart(const AnyOptions& options, const std::string& library) {
  const ChildEnd end = run_in_child(library, isolation_of(options).timeout);
  if (end.found == Code::none) return end.code;
  const auto* const check = std::get_if<CheckOptions>(&options);
  if (check != nullptr && !end.reported) return broken_library(*check, end.library, end.found, end.why);
  write_stderr(std::string("ampcheck: ") + name(text_of(end.found).verdict) + " (" + name(end.found) + "): " + end.why +
               "\n");
  return end.code;
}

ExitCode run(int argc, char** argv) {
  simulate_gpu_as_asked();
  sandbox_libraries_as_asked();
  if (argc > 1 && std::string_view(argv[1]) == "--worker") return worker_main(argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "--runner") return runner_main(argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "--audited") return audited_main(argc, argv);
  std::optional<std::string> help;
  AnyOptions options = parse_options(argc, argv, help);
  if (help) {
    write_stdout(*help);
    return ExitCode::passed;
  }
  const IsolationOptions isolation = isolation_of(options);
  require_own_processes(isolation, device_of(options));
  const bool apart = device_of(options) == Device::cpu;
  if (is_child())
    become_child(isolation.timeout, apart ? describe_outside : nullptr, apart ? run_kernels_outside : nullptr);
  else if (isolation.isolation)
    checks::watch_loading({.before = [](const std::string& path) { throw LibraryAhead{path}; }, .after = {}});
  try {
    return std::visit(RunCommand(), options);
  } catch (const LibraryAhead& library) {
    return run_apart(options, library.path);
  }
}

ExitCode said(ExitCode code, const std::exception& error) {
  write_stderr(std::string("ampcheck: ") + error.what() + "\n");
  return code;
}

/// Runs and turns whatever is thrown into a message and an exit code.
ExitCode guarded(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    return said(ExitCode::usage, error);
  } catch (const checks::PluginError& error) {  // a formula that fits some shapes only
    return said(ExitCode::usage, error);
  } catch (const checks::KernelError& error) {  // where there is no case to pin it to
    write_stderr(std::string("ampcheck: CRASH (AC501): ") + error.what() + "\n");
    return ExitCode::findings;
  } catch (const WriteError& error) {
    return said(ExitCode::not_written, error);
  } catch (const ForeignFileError& error) {
    return said(ExitCode::baseline, error);
  } catch (const MissingFileError& error) {
    return said(ExitCode::usage, error);
  } catch (const EnvironmentError& error) {
    return said(ExitCode::environment, error);
  } catch (const std::bad_alloc&) {
    write_stderr("ampcheck: not enough memory for this: smaller shapes, or of train a smaller --batch or --width\n");
    return ExitCode::environment;
  } catch (const std::exception& error) {
    said(ExitCode::internal, error);
    write_stderr("ampcheck: this is an error of ampcheck itself; please report it with the command line\n");
    return ExitCode::internal;
  }
}

}  // namespace

int main(int argc, char** argv) {
  require_cpu();
  hold_standard_files();
  keep_freed_memory(1 << 21);     // checks take buffers of many sizes; large ones have a pool
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe shows as a failed write
  std::signal(SIGXFSZ, SIG_IGN);  // so does a file that may not grow
  ExitCode code = guarded(argc, argv);
  try {
    close_stdout();
  } catch (const WriteError& error) {
    code = worse(code, said(ExitCode::not_written, error));
  }
  child_is_done(code);
  unload_outside();
  return static_cast<int>(code);
}
