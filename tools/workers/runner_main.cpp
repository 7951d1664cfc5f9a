// SPDX-License-Identifier: Apache-2.0
// The kernels' side of tools/workers/runner.h.
#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "checks/doors/loading.h"
#include "checks/doors/plugin.h"
#include "src/launch_notes.h"
#include "src/parallel.h"
#include "src/state_left.h"
#include "tools/choose/sandbox_choice.h"
#include "tools/workers/description.h"
#include "tools/workers/limits.h"
#include "tools/workers/no_memory.h"
#include "tools/workers/runner.h"
#include "tools/workers/runner_channel.h"
#include "tools/workers/sandbox.h"
#include "tools/workers/wire_bytes.h"
#include "tools/workers/worker_channel.h"

namespace ampcheck::tools {

namespace {

std::atomic<bool> cancel{false};
extern "C" void on_runner_terminate(int) { cancel.store(true); }

/// The tensors of the call that runs, for a handler that may call next to nothing.
struct Touchable {
  const char* name = nullptr;
  const std::byte *block = nullptr, *block_end = nullptr, *begin = nullptr, *end = nullptr;
};
std::array<Touchable, 64> touchable;
volatile std::sig_atomic_t touchable_count = 0;

/// A text of pieces, without memory of its own.
class Line {
 public:
  void add(const char* text) {
    while (*text != '\0' && size_ + 1 < sizeof text_) text_[size_++] = *text++;
  }
  void add(std::uint64_t value) {
    char digits[20];
    int n = 0;
    do digits[n++] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0 && size_ + 1 < sizeof text_) text_[size_++] = digits[--n];
  }
  void print() const { [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text_, size_); }

 private:
  char text_[256];
  std::size_t size_ = 0;
};

/// Where a call for memory failed before, that is what is missing. Otherwise it says which tensor an access missed, and
/// by how much, and the signal takes its course.
extern "C" void on_fault(int number, siginfo_t* info, void*) {
  if (errno == ENOMEM) end_runner_without_memory();
  std::signal(number, SIG_DFL);  // back to the access
  if (info->si_code <= 0) {      // nobody touched anything: a process sent it, as abort() does
    raise(number);
    return;
  }
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  for (int i = 0; i < touchable_count; ++i) {
    const Touchable& t = touchable[static_cast<std::size_t>(i)];
    const bool behind = at >= t.block_end && at < t.block_end + MappedArena::kZone;
    if (!behind && (at >= t.block || at < t.block - MappedArena::kZone)) continue;
    Line line;
    line.add("error: memory was touched ");
    line.add(static_cast<std::uint64_t>(behind ? at - t.end : t.begin - at));
    line.add(behind ? " bytes behind the last element of '" : " bytes before the first element of '");
    line.add(t.name);
    line.add("'\n");
    line.print();
    break;
  }
}

void catch_faults() {
  static char stack[1 << 16];  // one that overflowed its own has none left
  stack_t other{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT}) sigaction(number, &action, nullptr);
}

/// A call as it was sent. The judge is trusted.
struct SentCall {
  std::uint64_t op = 0, pass = 0;
  Attributes attributes;
  kernels::KernelCall call;
  std::uint64_t times = 1;
  std::vector<std::string> written;
};

void read_attributes(Reader& in, Attributes& to) {
  std::uint64_t count = 0;
  in.get(count);
  for (; count > 0; --count) {
    std::string name, text;
    std::uint64_t is_text = 0;
    double number = 0;
    in.get(name);
    in.get(is_text);
    if (is_text != 0)
      in.get(text);
    else
      in.get(number);
    to.set(name, is_text != 0 ? AttributeValue(text) : AttributeValue(number));
  }
}

Shape read_shape(Reader& in, std::uint64_t rank) {
  Shape out;
  out.rank = static_cast<int>(rank);
  for (std::uint64_t i = 0; i < rank; ++i) in.get(out.extent[i]);
  return out;
}

void read_tensor(Reader& in, MappedArena& arena, kernels::KernelCall& call) {
  auto& [name, view] = call.tensors.emplace_back();
  std::uint64_t rank = 0, at = 0;
  ArenaBlock block;
  in.get(name);
  in.get(view.dtype);
  in.get(rank);
  view.shape = read_shape(in, rank);
  view.strides = read_shape(in, rank);
  in.get(block.offset);
  in.get(block.bytes);
  in.get(at);
  if (block.offset == kNoMemory) return;
  std::byte* const begin = arena.map(block);
  view.data = begin + at;
  const auto n = static_cast<std::size_t>(touchable_count);
  if (n == touchable.size()) return;
  touchable[n] = {nullptr, begin, begin + block.bytes, begin + at, begin + at + reach_of(view)};
  touchable_count = static_cast<int>(n + 1);
}

void read_call(const std::string& text, MappedArena& arena, SentCall& out) {
  Reader in(text);
  in.get(out.op);
  in.get(out.pass);
  read_attributes(in, out.attributes);
  std::uint64_t count = 0;
  in.get(count);
  touchable_count = 0;
  for (; count > 0; --count) read_tensor(in, arena, out.call);
  std::size_t known = 0;  // names stay where they are from here on
  for (const auto& [name, view] : out.call.tensors)
    if (view.data != nullptr && known < static_cast<std::size_t>(touchable_count))
      touchable[known++].name = name.c_str();
  in.get(count);
  for (; count > 0; --count) {
    std::uint64_t offset = 0;
    in.get(offset);
    arena.forget(offset);
  }
  in.get(out.times);
  in.get(count);
  out.written.resize(count);
  for (std::string& name : out.written) in.get(name);
  out.call.attributes = &out.attributes;
  out.call.cancel = &cancel;
}

/// Runs the kernel; what it throws becomes an answer.
std::string answer(const std::vector<const checks::OpDef*>& ops, const std::string& request, MappedArena& arena) {
  CallEnd end = CallEnd::done;
  std::string what;
  std::int64_t equal = 1;
  double seconds = 0;
  const auto ended = [&](CallEnd how, const char* why) {
    end = how;
    what = why;
  };
  take_launch_notes();
  try {
    SentCall sent;
    read_call(request, arena, sent);
    const kernels::Kernel& kernel = ops.at(sent.op)->kernel;
    const auto pass = static_cast<KernelPass>(sent.pass);
    const kernels::KernelFn& function = pass == KernelPass::forward    ? kernel.forward
                                        : pass == KernelPass::backward ? kernel.backward
                                                                       : kernel.jvp;
    errno = 0;
    const auto start = std::chrono::steady_clock::now();
    equal = kernels::equal_calls(function, sent.call, sent.written, static_cast<std::int64_t>(sent.times));
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const checks::KernelError& error) {
    ended(is_for_memory(error) ? CallEnd::no_memory : CallEnd::kernel_error, error.what());
  } catch (const checks::PluginError& error) {
    ended(CallEnd::plugin_error, error.what());
  } catch (const EnvironmentError& error) {
    ended(CallEnd::environment_error, error.what());
  } catch (const std::bad_alloc&) {
    ended(CallEnd::no_memory, "");
  } catch (const std::exception& error) {
    ended(CallEnd::other_error, error.what());
  }
  touchable_count = 0;
  const std::vector<LaunchNote> notes = take_launch_notes();
  Writer out;
  out.put(static_cast<std::uint64_t>(end));
  out.put(what);
  out.put(static_cast<std::uint64_t>(equal));
  out.put(seconds);
  out.put(std::uint64_t{notes.size()});
  for (const LaunchNote& note : notes) out.put(note.text);
  return out.take();
}

/// Loads the library: what the judge is to know of it, and the ops with their kernels.
std::string loaded(const std::string& library, const std::string& left, std::vector<const checks::OpDef*>& ops) {
  Writer out;
  const auto failed = [&](LoadEnd how, const std::exception& error) {
    out.put(static_cast<std::uint64_t>(how));
    out.put(std::string(error.what()));
    return out.take();
  };
  try {
    const checks::Plugin& plugin = checks::load_plugin(library);
    const std::string description = plugin.description == nullptr ? "" : description_bytes(plugin);
    for (const checks::OpDef& op : plugin.ops) ops.push_back(&op);
    out.put(static_cast<std::uint64_t>(LoadEnd::done));
    out.put(left);
    out.put(std::uint64_t{plugin.refused.size()});
    for (const checks::RefusedOp& refused : plugin.refused) {
      out.put(refused.name);
      out.put(refused.why);
    }
    out.put(description);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const checks::PluginError& error) {
    if (is_for_memory(error)) throw std::bad_alloc();
    return failed(LoadEnd::plugin_error, error);
  } catch (const EnvironmentError& error) {
    if (is_for_memory(error)) throw std::bad_alloc();
    return failed(LoadEnd::environment_error, error);
  } catch (const std::exception& error) {
    return failed(LoadEnd::other_error, error);
  }
  std::string message = out.take();
  if (message.size() <= kMostMessage) return message;
  return failed(LoadEnd::plugin_error,
                checks::PluginError("[" + library + "] got a description of " + std::to_string(message.size()) +
                                    " bytes, want at most " + std::to_string(kMostMessage)));
}

/// Enters the sandbox where one is asked for, before any code of the library runs; what to answer where there is none.
std::string sandboxed(const std::string& library) {
  if (!libraries_are_sandboxed()) return "";
  try {
    enter_sandbox(library);
    checks::refuse_to_open("");
    return "";
  } catch (const EnvironmentError& error) {
    Writer out;
    out.put(static_cast<std::uint64_t>(LoadEnd::environment_error));
    out.put(std::string(error.what()));
    return out.take();
  }
}

/// `describes`: its library is unloaded at the end, as by a program of the user's.
ExitCode answer_requests(char** argv, bool describes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_memory(Device::cpu);
  limit(RLIMIT_FSIZE, kMostOutput);
  std::signal(SIGXFSZ, SIG_DFL);  // a kernel that prints without end is ended
  set_threads(1);
  std::string left;
  checks::watch_loading({.before = {},
                         .after = [&](const std::string&, const std::string& changed) { left = changed; },
                         .keeps_state = !describes});
  leave_memory_to_libraries();
  Writer up;
  up.put(static_cast<std::uint64_t>(LoadEnd::up));
  if (!send_message(kReplies, up.take())) _exit(0);
  const std::string no_sandbox = sandboxed(argv[2]);
  catch_faults();
  errno = 0;
  std::vector<const checks::OpDef*> ops;
  const std::string description = no_sandbox.empty() ? loaded(argv[2], left, ops) : no_sandbox;
  const pid_t self = getpid();
  if (describes)  // whoever is asked to end, the process that reports ends first
    for (const int asked : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(asked, SIG_IGN);
  std::fflush(nullptr);
  if (!send_message(kReplies, description)) _exit(0);
  struct sigaction action {};
  action.sa_handler = on_runner_terminate;
  sigaction(SIGTERM, &action, nullptr);
  MappedArena arena(kSharedMemory);
  for (std::string request; receive_message(kRequests, request);) {
    const std::string reply = answer(ops, request, arena);
    if (getpid() != self) _exit(0);  // a fork of the kernel's, come this far: it is not the runner
    std::fflush(nullptr);            // what the kernel printed belongs to this call
    if (!send_message(kReplies, reply)) break;
  }
  if (describes) std::exit(0);
  _exit(0);  // the library's destructors are its own affair
}

}  // namespace

ExitCode runner_main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return ExitCode::usage;
  try {
    return answer_requests(argv, argc == 4);
  } catch (const std::bad_alloc&) {
    end_runner_without_memory();
  }
}

}  // namespace ampcheck::tools
