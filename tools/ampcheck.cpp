// SPDX-License-Identifier: Apache-2.0
// The ampcheck program: reads the command line, runs one verb, and says how it ended by the exit code.
#include <csignal>
#include <exception>
#include <map>
#include <set>

#include "checks/doors/plugin.h"
#include "src/cpu_check.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "tools/choose/plugins.h"
#include "tools/commands/commands.h"
#include "tools/report/output.h"
#include "tools/workers/child.h"
#include "tools/workers/isolation.h"

/// The signals of a kernel are findings of the supervisor, so a sanitizer leaves them alone.
#define AMPCHECK_SIGNALS_LEFT_ALONE "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0"
#ifdef __SANITIZE_ADDRESS__
extern "C" const char* __asan_default_options() { return AMPCHECK_SIGNALS_LEFT_ALONE; }
#endif
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_options() { return AMPCHECK_SIGNALS_LEFT_ALONE; }
#endif

namespace {

using namespace ampcheck;
using namespace ampcheck::tools;

ExitCode run(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--worker") return worker_main(argc, argv);
  static const std::map<std::string, ExitCode (*)(const Options&)> kVerbs = {
      {"list", list_command},       {"check", check_command},     {"replay", replay_command},
      {"certify", certify_command}, {"formats", formats_command}, {"explain", explain_command},
      {"doctor", doctor_command},   {"version", version_command}, {"new", new_command},
      {"compare", compare_command}, {"audit", audit_command},     {"contract", contract_command},
      {"train", train_command},     {"trace", trace_command},     {"facts", facts_command},
      {"memory", memory_command}};
  std::optional<std::string> help;
  Options options = parse_options(argc, argv, help);
  if (help) {
    write_stdout(*help);
    return ExitCode::passed;
  }
  static const std::set<std::string> kOfOps = {"list", "check", "replay", "certify", "contract"};
  if (kOfOps.contains(options.verb)) open_plugin(options);
  for (const std::string& why : options.refused)
    if (!is_child()) write_stderr("ampcheck: " + why + "\nampcheck: the other ops of the library are looked at\n");
  const ExitCode code = kVerbs.at(options.verb)(options);
  const bool ended = code == ExitCode::passed || code == ExitCode::findings || code == ExitCode::nothing_ran;
  return !options.refused.empty() && ended ? ExitCode::usage : code;
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
  keep_freed_memory(1 << 21);     // checks take buffers of many sizes; large ones have a pool
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe shows as a failed write
  ExitCode code = guarded(argc, argv);
  try {
    close_stdout();
  } catch (const WriteError& error) {
    code = worse(code, said(ExitCode::not_written, error));
  }
  child_is_done();
  return static_cast<int>(code);
}
