// SPDX-License-Identifier: Apache-2.0
// The worker's side of tools/workers/isolation.h.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "checks/doors/loading.h"
#include "checks/doors/plugin.h"
#include "checks/run/sampled.h"
#include "src/parallel.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/choose/user_tensors.h"
#include "tools/workers/isolation.h"
#include "tools/workers/kernel_clock.h"
#include "tools/workers/limits.h"
#include "tools/workers/no_memory.h"
#include "tools/workers/runner.h"
#include "tools/workers/wire.h"
#include "tools/workers/worker_channel.h"

namespace ampcheck::tools {

namespace {

std::atomic<bool> cancel{false};  ///< asked to end: kernels hear of it by should_cancel
extern "C" void on_terminate(int) { cancel.store(true); }

/// Ends as SIGTERM ends a process that does not catch it: the supervisor sees that the kernel let go.
[[noreturn]] void end_by_terminate() {
  std::signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
  _exit(128 + SIGTERM);
}

/// The supervisor waits for an answer before it asks again: what is read at a time is one request, or a part of one.
bool read_line(std::string& line) {
  line.clear();
  for (char buffer[4096];;) {
    const ssize_t got = read(kRequests, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR && !cancel.load()) continue;
    if (got <= 0) return false;
    line.append(buffer, static_cast<std::size_t>(got));
    if (line.back() == '\n') {
      line.pop_back();
      return true;
    }
  }
}

bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(kReplies, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

/// `how`: the words "relations" and "as-written", or not.
checks::RunOptions run_options(std::string_view device, std::string_view how) {
  checks::RunOptions out;
  out.device = device == name(Device::cuda) ? Device::cuda : Device::cpu;
  out.relations = how.find("relations") != std::string_view::npos;
  out.as_written = how.find("as-written") != std::string_view::npos;
  out.jobs = 1;
  out.cancel = &cancel;
  return out;
}

/// How a case is to be judged, by a request's first two letters.
checks::How how_of(const std::string& request) {
  const char what = request.size() > 1 ? request[1] : kExplained;
  return {.sampled = request.starts_with(kSampled),
          .explain = what == kExplained || what == kMeasured,
          .power = what == kMeasured,
          .values = what == kReduced,
          .first = what == kReduced || what == kFirst};
}

/// The supervisor has seen this library described: if it is another one now, that is its doing.
void open_library(CaseOptions& options, KernelClock& clock) {
  try {
    open_plugin(options);
  } catch (const EnvironmentError&) {
    clock.stop();
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    clock.blame();
    throw;
  }
}

ExitCode answer_requests(char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CaseOptions options;
  options.verb = "worker";
  options.words = {argv[2]};
  options.inputs = argv[5];
  const checks::RunOptions run = run_options(argv[3], argv[4]);
  KernelClock* const clock = KernelClock::map(kClock);  // to the end of the process
  close(kClock);                                        // kernels do not see it
  std::unique_ptr<KernelRunner> runner;
  if (kernels_run_apart(options.words.front(), run.device)) {
    runner = std::make_unique<KernelRunner>(options.words.front(), KernelRunner::Kind::heard, clock);
    KernelRunner::before_ending_alike([clock](const std::string&) { clock->blame(); });
    checks::watch_loading({.before = {}, .after = {}, .outside = [&](const std::string&) {
                             return std::optional(runner->description());
                           }});
  }
  limit_memory(run.device);
  limit(RLIMIT_FSIZE, kMostOutput);  // a kernel may not take the disk either
  std::signal(SIGXFSZ, SIG_DFL);     // one that prints without end is ended
  set_threads(1);
  if (runner == nullptr) {
    leave_memory_to_libraries();
    clock->start();  // of loading the library, here
  }
  open_library(options, *clock);
  if (runner != nullptr) {
    std::vector<const checks::OpDef*> there;
    for (const checks::OpDef& op : runner->take_over(options.plugin_ops)) there.push_back(&op);
    options.plugin_ops = std::move(there);
    runner->share_tensors();
    clock->apart();
  }
  open_data(options);
  const pid_t self = getpid();
  struct sigaction action {};
  action.sa_handler = on_terminate;  // no SA_RESTART: one that waits for a case ends
  sigaction(SIGTERM, &action, nullptr);
  for (std::string line; read_line(line);) {
    const checks::How how = how_of(line);
    const checks::Case item = parse_case(options, line.substr(std::min<std::size_t>(2, line.size())));
    std::optional<CaseResult> result;
    try {
      result = checks::run_one(item, how, run);
    } catch (const checks::Interrupted&) {
    }
    if (getpid() != self) _exit(0);  // a fork of the kernel's, come this far: it is not the worker
    std::fflush(nullptr);            // what the kernel printed belongs to this case
    if (!result) end_by_terminate();
    std::string reply(sizeof(std::uint64_t), '\0');
    reply += wire_text(*result);
    const std::uint64_t size = reply.size() - sizeof size;
    std::memcpy(reply.data(), &size, sizeof size);
    if (!write_all(reply)) break;
  }
  _exit(0);  // the library's destructors are its own affair
}

}  // namespace

ExitCode worker_main(int argc, char** argv) {
  if (argc != 6) return ExitCode::usage;
  try {
    return answer_requests(argv);
  } catch (const std::bad_alloc&) {
    end_worker_without_memory();
  } catch (const checks::PluginError& error) {
    if (is_for_memory(error)) end_worker_without_memory();
    throw;
  }
}

}  // namespace ampcheck::tools
