// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/runner.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "checks/define/lasting.h"
#include "checks/doors/plugin.h"
#include "checks/doors/toml_launchers.h"
#include "checks/run/run_case.h"
#include "src/launch_notes.h"
#include "src/launch_time.h"
#include "src/spawn_actions.h"
#include "src/state_left.h"
#include "tools/workers/child.h"
#include "tools/workers/orphans.h"
#include "tools/workers/runner_channel.h"
#include "tools/workers/wire_bytes.h"
#include "tools/workers/worker_channel.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

using Clock = std::chrono::steady_clock;

/// Tensors of a call whose memory is not shared: copies that are, and back.
class Copies {
 public:
  explicit Copies(KernelArena& arena) : arena_(arena) {}

  /// Where the tensor's elements lie in shared memory.
  KernelArena::Place place(const TensorView& view, const std::byte*& data) {
    data = static_cast<const std::byte*>(view.data);
    if (const auto known = arena_.find(view.data)) return *known;
    const std::size_t size = reach_of(view);
    for (const Copy& copy : all_)  // tensors that are one stay one
      if (copy.from == view.data && copy.bytes == size) return place_of(copy, data);
    all_.push_back({static_cast<std::byte*>(view.data), size, arena_.allocate(arena_.whole(size))});
    std::memcpy(all_.back().copy.get(), view.data, size);
    return place_of(all_.back(), data);
  }
  /// What was not written is left alone: another thread may read it.
  void bring_back() const {
    for (const Copy& copy : all_)
      if (copy.bytes > 0 && std::memcmp(copy.from, copy.copy.get(), copy.bytes) != 0)
        std::memcpy(copy.from, copy.copy.get(), copy.bytes);
  }

 private:
  struct Copy {
    std::byte* from;
    std::size_t bytes;
    std::shared_ptr<std::byte> copy;
  };
  KernelArena::Place place_of(const Copy& copy, const std::byte*& data) const {
    data = copy.copy.get();
    return *arena_.find(data);
  }

  KernelArena& arena_;
  std::deque<Copy> all_;
};

void put(Writer& out, const Shape& shape, int rank) {
  for (int i = 0; i < rank; ++i) out.put(shape[i]);
}

std::string request_of(std::size_t op, KernelPass pass, const kernels::KernelCall& call,
                       const KernelRunner::Series& series, KernelArena& arena, Copies& copies) {
  Writer out;
  out.put(std::uint64_t{op});
  out.put(static_cast<std::uint64_t>(pass));
  out.put(std::uint64_t{call.attributes->all().size()});
  for (const auto& [name, value] : call.attributes->all()) {
    const auto* const text = std::get_if<std::string>(&value);
    out.put(name);
    out.put(std::uint64_t{text != nullptr});
    if (text != nullptr)
      out.put(*text);
    else
      out.put(std::get<double>(value));
  }
  out.put(std::uint64_t{call.tensors.size()});
  for (const auto& [name, view] : call.tensors) {
    out.put(name);
    out.put(std::string(ampcheck::name(view.dtype)));
    out.put(static_cast<std::uint64_t>(view.shape.rank));
    put(out, view.shape, view.shape.rank);
    put(out, view.strides, view.shape.rank);
    const std::byte* data = nullptr;
    const KernelArena::Place place =
        view.data == nullptr ? KernelArena::Place{{kNoMemory, 0}, nullptr} : copies.place(view, data);
    out.put(place.block.offset);
    out.put(place.block.bytes);
    out.put(static_cast<std::uint64_t>(data - place.begin));
  }
  const std::vector<std::uint64_t> gone = arena.take_gone();
  out.put(std::uint64_t{gone.size()});
  for (const std::uint64_t offset : gone) out.put(offset);
  out.put(static_cast<std::uint64_t>(series.times));
  out.put(std::uint64_t{series.written.size()});
  for (const std::string& name : series.written) out.put(name);
  return out.take();
}

/// What is done before this process ends as that of a library did.
std::function<void(const std::string&)>& ends_alike() {
  static std::function<void(const std::string&)> what;
  return what;
}

/// What a call was, as its process says.
struct Reply {
  std::int64_t equal = 0;  ///< calls that left the same bits
  double seconds = 0;
};

/// Throws what the kernel threw. Nothing that its process says becomes a finding by itself, but for that and the bits
/// that stayed the same.
Reply take_reply(const std::string& reply) {
  Reader in(reply);
  std::uint64_t end = 0, notes = 0, equal = 0;
  std::string what;
  double seconds = 0;
  in.get(end);
  in.get(what);
  in.get(equal);
  in.get(seconds);
  in.get(notes);
  for (; notes > 0; --notes) {
    std::string text;
    in.get(text);
    note_launch({Code::none, kStateLeft, text});
  }
  switch (static_cast<CallEnd>(end)) {
    case CallEnd::done: return {static_cast<std::int64_t>(equal), seconds};
    case CallEnd::no_memory:
      if (what.empty()) throw std::bad_alloc();
      throw EnvironmentError(std::string(checks::kForMemory) + " " + what);
    case CallEnd::environment_error: throw EnvironmentError(what);
    case CallEnd::plugin_error: throw checks::PluginError(what);
    case CallEnd::other_error: throw Error(what);
    case CallEnd::kernel_error: break;
  }
  throw checks::KernelError(what);
}

}  // namespace

/// A library's kernels forget when their process is another one.
class KernelRunner::Host : public kernels::KernelHost {
 public:
  Host(KernelRunner& runner, std::size_t op) : runner_(runner), op_(op) {}
  void start_anew() override { runner_.start_anew(); }
  void distrust() override { runner_.distrust(op_); }
  std::int64_t equal_calls(const kernels::KernelCall& call, const std::vector<std::string>& written,
                           std::int64_t times) override {
    return runner_.call(op_, KernelPass::forward, call, {times, written});
  }

 private:
  KernelRunner& runner_;
  std::size_t op_;
};

KernelRunner::KernelRunner(std::string library, Kind kind, KernelClock* clock)
    : library_(std::move(library)), kind_(kind), clock_(clock) {
  if (kind_ != Kind::silent) start();
}

void KernelRunner::start_anew() {
  const std::lock_guard lock(mutex_);
  restart();
}

void KernelRunner::distrust(std::size_t op) {
  const std::lock_guard lock(mutex_);
  distrusted_ = op;
}

void KernelRunner::restart() {
  distrusted_.reset();
  close(std::exchange(requests_, -1));
  close(std::exchange(replies_, -1));
  if (process_ != 0) {
    kill(process_, SIGKILL);
    waitpid(process_, &status_, 0);
    process_ = 0;
  }
  start();
}

void KernelRunner::start() {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
    throw EnvironmentError(std::string("[runner] cannot make a pipe: ") + std::strerror(errno));
  SpawnActions actions;
  // Through high numbers first: a descriptor may be the number that another goes to.
  const int high[] = {fcntl(to[0], F_DUPFD_CLOEXEC, 64), fcntl(from[1], F_DUPFD_CLOEXEC, 64),
                      fcntl(arena_.file(), F_DUPFD_CLOEXEC, 64)};
  const int low[] = {kRequests, kReplies, kSharedMemory};
  for (int i = 0; i < 3; ++i) actions.duplicate(high[i], low[i]);
  if (kind_ != Kind::heard) actions.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
  std::string words[] = {"ampcheck", "--runner", library_, "describes"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  kind_ == Kind::describes ? words[3].data() : nullptr, nullptr};
  int failed = 0;
  process_ = start_own_child([&] {
    pid_t child = 0;
    failed = posix_spawn(&child, "/proc/self/exe", actions.get(), nullptr, argv, environ);
    return failed == 0 ? child : 0;
  });
  for (const int file : {high[0], high[1], high[2], to[0], from[1]}) close(file);
  if (failed != 0) throw EnvironmentError(std::string("[runner] cannot be started: ") + std::strerror(failed));
  requests_ = to[1];
  replies_ = from[0];
  up_ = described_ = false;
}

void KernelRunner::before_ending_alike(std::function<void(const std::string&)> what) { ends_alike() = std::move(what); }

const checks::OutsideDescription& KernelRunner::description() {
  const std::lock_guard lock(mutex_);
  if (!described_) take_description();
  return description_;
}

/// A process that ends before is none of the library's doing.
void KernelRunner::wait_until_up() {
  std::string message;
  if (!answers() || !receive_message(replies_, message)) {
    wait_for_its_end();
    throw EnvironmentError(std::string(checks::kProcessLost) + " that of the kernels ended " + how_it_ended(status_) +
                           " before it loaded '" + library_ + "'; is there enough memory?");
  }
  Reader in(message);
  std::uint64_t what = 0;
  in.get(what);
  if (static_cast<LoadEnd>(what) == LoadEnd::no_memory) throw std::bad_alloc();
  up_ = true;
}

/// What a process that was started again says is what the first one said, or not looked at.
void KernelRunner::take_description() {
  if (!up_) wait_until_up();
  const LoadingTime loads(clock_);
  std::string message;
  if (!answers() || !receive_message(replies_, message)) end_as_it_did();
  described_ = true;
  Reader in(message);
  std::uint64_t end = 0;
  std::string text;
  in.get(end);
  if (static_cast<LoadEnd>(end) == LoadEnd::no_memory) throw std::bad_alloc();
  if (memory_) return;
  in.get(text);
  switch (static_cast<LoadEnd>(end)) {
    case LoadEnd::done: break;
    case LoadEnd::plugin_error: throw checks::PluginError(text);
    case LoadEnd::environment_error: throw EnvironmentError(text);
    default: throw Error(text);
  }
  description_.left = text;
  description_.refused.resize(in.count(2 * sizeof(std::uint64_t)));
  for (checks::RefusedOp& refused : description_.refused) {
    in.get(refused.name);
    in.get(refused.why);
  }
  in.get(text);
  in.end();
  if (text.empty()) return;  // of a TOML file
  description_.plugin = memory_.emplace(text).plugin();
}

void KernelRunner::unload() {
  close(requests_);
  while (waitpid(process_, &status_, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
  const bool alright = WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
  if (!alright && !has_answered()) end_as_it_did();  // an answer: that it found no memory
}

const std::deque<checks::OpDef>& KernelRunner::take_over(const std::vector<const checks::OpDef*>& ops) {
  for (std::size_t i = 0; i < ops.size(); ++i) {
    checks::OpDef& own = ops_.emplace_back(*ops[i]);
    const auto there = [this, i](const kernels::KernelFn& kernel, KernelPass pass) -> kernels::KernelFn {
      if (!kernel) return nullptr;
      return [this, i, pass](const kernels::KernelCall& given) {
        try {
          call(i, pass, given, {});
        } catch (const std::bad_alloc&) {  // of this process or that one, and of neither's kernel
          throw EnvironmentError(checks::kNoMemory);
        }
      };
    };
    own.kernel = {there(ops[i]->kernel.forward, KernelPass::forward),
                  there(ops[i]->kernel.backward, KernelPass::backward), there(ops[i]->kernel.jvp, KernelPass::jvp),
                  std::make_shared<Host>(*this, i)};
  }
  return ops_;
}

void KernelRunner::share_tensors() { checks::lend_kernel_memory(&arena_); }

std::int64_t KernelRunner::call(std::size_t op, KernelPass pass, const kernels::KernelCall& call,
                                const Series& series) {
  const std::lock_guard lock(mutex_);
  if (process_ == 0 || (distrusted_ && *distrusted_ != op)) restart();
  try {
    Copies copies(arena_);
    std::string reply;
    const std::string request = request_of(op, pass, call, series, arena_, copies);
    if (!described_) take_description();
    const auto start = Clock::now();
    {
      const KernelTime counts(clock_);
      const bool sent = send_message(requests_, request);
      if (!(sent ? answers() : has_answered()) || !receive_message(replies_, reply)) end_as_it_did();
    }
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    copies.bring_back();
    const Reply said = take_reply(reply);
    note_launch_time(said.seconds >= 0 && said.seconds <= waited ? said.seconds : waited);
    return said.equal;
  } catch (const std::bad_alloc&) {
    restart();  // it may have ended with these words, or a message of it is read in part
    throw;
  }
}

/// Waits for the beginning of an answer, in slices: a fork of the kernel's may hold the pipe open.
bool KernelRunner::answers() {
  constexpr int kSlice = 50;  // milliseconds
  for (;;) {
    pollfd at = {replies_, POLLIN, 0};
    if (poll(&at, 1, kSlice) > 0) return (at.revents & POLLIN) != 0;
    if (waitpid(process_, &status_, WNOHANG) == process_) {
      process_ = 0;
      return false;
    }
  }
}

/// Whether it left an answer before it ended: that it found no memory.
bool KernelRunner::has_answered() const {
  pollfd at = {replies_, POLLIN, 0};
  return poll(&at, 1, 0) > 0 && (at.revents & POLLIN) != 0;
}

void KernelRunner::wait_for_its_end() {
  constexpr auto kMercy = std::chrono::seconds(1);
  const auto deadline = Clock::now() + kMercy;
  while (process_ != 0 && waitpid(process_, &status_, WNOHANG) == 0) {  // it may have closed its descriptors, and go on
    if (Clock::now() > deadline) kill(process_, SIGKILL);
    usleep(1000);
  }
  process_ = 0;
}

void KernelRunner::end_as_it_did() {
  wait_for_its_end();
  if (ends_alike()) ends_alike()(library_);
  const int status = status_;
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  std::signal(WTERMSIG(status), SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, WTERMSIG(status));
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  kill(getpid(), WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

bool kernels_run_apart(const std::string& library, Device device) {
  return device == Device::cpu && checks::simulated_kernel(library).empty();
}

namespace {

/// A runner to the end of the process: tensors and ops point into it. The list keeps it within reach then, when what
/// else points to it has ended: a leak checker would call it lost.
KernelRunner& kept_runner(const std::string& library) {
  static auto* const all = new std::deque<KernelRunner>;
  return all->emplace_back(library, KernelRunner::Kind::silent);
}

}  // namespace

void take_kernels_apart(std::vector<const checks::OpDef*>& ops, const IsolationOptions& options, Device device) {
  run_kernels_here(ops, options, device);
  if (ops.empty() || !options.isolation || !is_child() || !kernels_run_apart(ops.front()->plugin, device)) return;
  KernelRunner& runner = kept_runner(ops.front()->plugin);
  const std::deque<checks::OpDef>& there = runner.take_over(ops);
  runner.share_tensors();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    checks::keep_for_good(there[i]);
    ops[i] = &there[i];
  }
}

void run_kernels_outside(const std::string& library, std::vector<checks::OpDef>& ops) {
  std::vector<const checks::OpDef*> own;
  for (const checks::OpDef& op : ops) own.push_back(&op);
  const std::deque<checks::OpDef>& there = kept_runner(library).take_over(own);
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i].kernel = there[i].kernel;
}

namespace {

std::deque<KernelRunner>& describing() {
  static auto* const all = new std::deque<KernelRunner>;  // their ops point into them to the very end
  return all[0];
}

}  // namespace

std::optional<checks::OutsideDescription> describe_outside(const std::string& library) {
  if (!kernels_run_apart(library, Device::cpu)) return std::nullopt;
  return describing().emplace_back(library, KernelRunner::Kind::describes).description();
}

void unload_outside() {
  for (KernelRunner& runner : describing()) runner.unload();
}

}  // namespace ampcheck::tools
