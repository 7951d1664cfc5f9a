// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/isolation.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <optional>

#include "checks/data/file_tensors.h"
#include "checks/run/run_case.h"
#include "src/error.h"
#include "src/spawn_actions.h"
#include "tools/report/output.h"
#include "tools/workers/kernel_clock.h"
#include "tools/workers/oom_kills.h"
#include "tools/workers/orphans.h"
#include "tools/workers/wire.h"
#include "tools/workers/worker_channel.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSlow = std::chrono::seconds(10);  ///< after which a case is called slow
constexpr auto kMercy = std::chrono::seconds(2);  ///< between SIGTERM and SIGKILL
constexpr std::size_t kMostReply = 256 << 20;
constexpr std::size_t kShownOutput = 600;
constexpr std::size_t kReadOutput = 1 << 16;  ///< of what a case printed, the end
constexpr int kMostAttempts = 100;

/// The first line that names an assertion or an error; at most what is shown of the end.
std::string telling_line(const std::string& text) {
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start), lower = line;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const char* const word : {"assert", "error", "what():", "fatal"})
      if (lower.find(word) != std::string::npos) return line.substr(0, kShownOutput);
    start = end + 1;
  }
  return "";
}

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw EnvironmentError(std::string("[worker] cannot make a pipe: ") + std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return "its process was killed " + how_it_ended(status);
  return "its process ended " + how_it_ended(status) + " before the case was done";
}

/// Where the inputs of a case are, after the process that held them is gone.
std::string inputs_text(const OpCall& call, const WorkerSetup& setup) {
  if (checks::is_file_range(call.range))
    return "its inputs are those of '" + setup.inputs + "', whose contents the case name states";
  return "its inputs and cotangents follow from the case name, bit for bit; replay --save DIR writes the inputs before "
         "the call";
}

CaseResult broken_case(const checks::OpDef& op, const OpCall& call, const WorkerSetup& setup, Code code,
                       const std::string& cause, double seconds) {
  CaseResult out;
  out.name = call.str(op.signature);
  out.op = op.signature.name;
  out.plugin = op.plugin;
  out.dtype = name(call.storage);
  out.verdict = text_of(code).verdict;
  out.code = code;
  out.seconds = seconds;
  CheckResult check;
  check.find(code);
  check.compared = check.failed = 1;
  check.cause = cause;
  check.note = inputs_text(call, setup);
  out.checks.push_back(std::move(check));
  return out;
}

/// A case that nobody judged, for a reason that is none of the kernel's (checks::is_left_out).
CaseResult left_out(const checks::OpDef& op, const OpCall& call, const std::string& why, double seconds) {
  CaseResult out;
  out.name = call.str(op.signature);
  out.op = op.signature.name;
  out.plugin = op.plugin;
  out.dtype = name(call.storage);
  out.verdict = Verdict::skipped;
  out.note = why;
  out.seconds = seconds;
  return out;
}

}  // namespace

WorkerSetup worker_setup(const std::vector<const checks::OpDef*>& ops, const RunningOptions& options,
                         const std::string& inputs) {
  return {.library = ops.empty() || !options.isolation ? "" : ops.front()->plugin,
          .device = options.device,
          .relations = options.relations,
          .as_written = options.as_written,
          .inputs = inputs,
          .timeout = options.timeout};
}

class WorkerPool::Worker {
 public:
  /// no_memory: it found none for itself; gone: it was dead before the case.
  enum class Answer { reply, no_memory, died, timeout, cancelled, gone };

  explicit Worker(const WorkerSetup& setup) {
    auto [request_read, request_write] = make_pipe();
    auto [reply_read, reply_write] = make_pipe();
    output_ = Descriptor(memfd_create("worker output", MFD_CLOEXEC));
    const Descriptor clock_file(KernelClock::make_file());
    clock_.reset(KernelClock::map(clock_file.get()));
    SpawnActions actions;
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // Through high numbers first: a descriptor may be the number that another goes to.
    const int in = fcntl(request_read.get(), F_DUPFD_CLOEXEC, 64), out = fcntl(reply_write.get(), F_DUPFD_CLOEXEC, 64),
              clock = fcntl(clock_file.get(), F_DUPFD_CLOEXEC, 64);
    actions.open(0, "/dev/null", O_RDONLY);
    actions.duplicate(output_.get(), 1);
    actions.duplicate(output_.get(), 2);
    actions.duplicate(in, kRequests);
    actions.duplicate(out, kReplies);
    actions.duplicate(clock, kClock);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const std::string how = std::string(setup.relations ? "relations " : "") + (setup.as_written ? "as-written" : "");
    std::string words[] = {"ampcheck", "--worker", setup.library, name(setup.device), how, setup.inputs};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                    words[4].data(), words[5].data(), nullptr};
    int failed = 0;
    pid_ = start_own_child([&] {
      pid_t child = 0;
      failed = posix_spawn(&child, setup.program.c_str(), actions.get(), &attributes, argv, environ);
      return failed == 0 ? child : 0;
    });
    posix_spawnattr_destroy(&attributes);
    close(in);
    close(out);
    close(clock);
    if (failed != 0)
      throw EnvironmentError("[worker] '" + setup.program + "' cannot be started: " + std::strerror(failed));
    requests_ = std::move(request_write);
    replies_ = std::move(reply_read);
    fcntl(replies_.get(), F_SETFL, O_NONBLOCK);
  }

  ~Worker() { end(SIGKILL); }

  Answer ask(const std::string& case_name, const checks::How& how, double timeout, const std::atomic<bool>* cancel,
             std::string& reply) {
    const std::string line = std::string{how.sampled ? kSampled : kWhole, how.values    ? kReduced
                                                                          : how.power   ? kMeasured
                                                                          : how.explain ? kExplained
                                                                          : how.first   ? kFirst
                                                                                        : kJudged} +
                             case_name + "\n";
    printed_before_ = output_size();
    if (asked_) clock_->restart();  // the time of the first case began with the loading of the library
    asked_ = true;
    if (write(requests_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) return Answer::gone;
    const auto start = Clock::now();
    bool told = false;
    for (;;) {
      pollfd at = {replies_.get(), POLLIN, 0};
      poll(&at, 1, 100);  // in slices: a fork of the kernel's may hold the pipe open
      if (read_some(reply)) return Answer::reply;
      if (no_memory_) return Answer::no_memory;
      if (closed_ || waitpid(pid_, &status_, WNOHANG) == pid_) {
        reap();
        return Answer::died;
      }
      if (!told && Clock::now() - start > kSlow) {
        write_stderr("ampcheck: SLOW: '" + case_name + "' is running\n");
        told = true;
      }
      if (cancel != nullptr && cancel->load()) {
        end(SIGTERM);
        return Answer::cancelled;
      }
      if (clock_->seconds() > timeout) {
        end(SIGTERM);
        return Answer::timeout;
      }
    }
  }

  /// How it took the end of its time. A worker ends by SIGTERM once its kernel returned; what does not return is
  /// killed.
  const char* last_words() const {
    return WIFSIGNALED(status_) && WTERMSIG(status_) == SIGTERM
               ? "its kernel returned when asked to (should_cancel)"
               : "asked to end (should_cancel), it did not within 2 s and was killed";
  }

  std::string last_printed() const {
    const std::string text = printed();
    return text.empty() ? "" : "; it had printed: " + text;
  }
  /// Why it is no more; what it printed last.
  std::string obituary() const { return end_text(status_) + last_printed(); }
  /// Whether that is the library's doing.
  bool ended_by_library() const { return clock_->is_the_librarys(); }
  /// Whether it, or the process of its kernels, whose end it shares, may have been killed since memory was short.
  bool ended_for_memory() const {
    return WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL && oom_kills() > oom_kills_before_;
  }

  /// The end of what was printed since the case began (an earlier one may be of another op), and before it the line
  /// that says why, which a long backtrace pushes out of sight.
  std::string printed() const {
    const off_t size = output_size(), from = std::max<off_t>(printed_before_, size - static_cast<off_t>(kReadOutput));
    if (size <= from) return "";
    std::string text(static_cast<std::size_t>(size - from), '\0');
    const ssize_t got = pread(output_.get(), text.data(), text.size(), from);
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::string end = text.size() > kShownOutput ? text.substr(text.size() - kShownOutput) : text;
    const std::string why = end.size() < text.size() ? telling_line(text) : "";
    std::string shown = why.empty() || end.find(why) != std::string::npos ? end : why + " ... " + end;
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
    return shown;
  }

 private:
  off_t output_size() const {
    struct stat at {};
    return fstat(output_.get(), &at) == 0 ? at.st_size : 0;
  }

  /// True once a whole reply is there, and takes its length off.
  bool read_some(std::string& reply) {
    char buffer[1 << 16];
    for (;;) {
      const ssize_t got = read(replies_.get(), buffer, sizeof buffer);
      if (got < 0) return false;
      if (got == 0) {
        closed_ = true;
        return false;
      }
      reply.append(buffer, static_cast<std::size_t>(got));
      std::uint64_t size = 0;
      if (reply.size() < sizeof size) continue;
      std::memcpy(&size, reply.data(), sizeof size);
      no_memory_ = size == kNoMemoryAnswer;
      if (size > kMostReply || reply.size() > size + sizeof size) {
        closed_ = true;
        return false;
      }
      if (reply.size() == size + sizeof size) {
        reply.erase(0, sizeof size);
        return true;
      }
    }
  }

  /// After the pipe closed: waits for the end of the process, and ends what it left behind.
  void reap() {
    if (pid_ <= 0) return;
    if (closed_ && !wait_until(Clock::now() + kMercy)) return end(SIGKILL);
    kill(-pid_, SIGKILL);
    forget();
  }

  /// It was waited for: what it started and left behind ends too.
  void forget() {
    own_child_ended(pid_);
    end_orphans();
    pid_ = 0;
  }

  bool wait_until(Clock::time_point deadline) {
    for (;;) {
      if (waitpid(pid_, &status_, WNOHANG) == pid_) return true;
      if (Clock::now() > deadline) return false;
      usleep(2000);
    }
  }

  void end(int signal) {
    if (pid_ <= 0) return;
    kill(-pid_, signal);
    if (signal != SIGKILL && !wait_until(Clock::now() + kMercy)) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, &status_, 0);
    } else if (signal == SIGKILL)
      waitpid(pid_, &status_, 0);
    kill(-pid_, SIGKILL);  // its children
    forget();
  }

  struct Unmap {
    void operator()(KernelClock* clock) const { KernelClock::unmap(clock); }
  };

  Descriptor requests_, replies_, output_;
  std::unique_ptr<KernelClock, Unmap> clock_;
  bool asked_ = false;
  pid_t pid_ = 0;
  int status_ = 0;
  std::int64_t oom_kills_before_ = oom_kills();
  off_t printed_before_ = 0;  ///< size of the output when the case began
  bool closed_ = false, no_memory_ = false;
};

struct WorkerPool::State {
  WorkerSetup setup;
  const std::atomic<bool>* cancel = nullptr;
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;
};

WorkerPool::WorkerPool(const WorkerSetup& setup, const std::atomic<bool>* cancel) : state_(std::make_unique<State>()) {
  state_->setup = setup;
  state_->cancel = cancel;
}
WorkerPool::~WorkerPool() = default;

std::unique_ptr<WorkerPool::Worker> WorkerPool::take() {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->idle.empty()) {
      std::unique_ptr<Worker> out = std::move(state_->idle.back());
      state_->idle.pop_back();
      return out;
    }
  }
  return std::make_unique<Worker>(state_->setup);
}

void WorkerPool::give(std::unique_ptr<Worker> worker) {
  const std::lock_guard lock(state_->mutex);
  state_->idle.push_back(std::move(worker));
}

CaseResult WorkerPool::run(const checks::OpDef& op, const OpCall& call, const checks::How& how) {
  const auto start = Clock::now();
  const std::string case_name = call.str(op.signature);
  for (int attempt = 0;; ++attempt) {
    std::unique_ptr<Worker> worker = take();
    std::string reply;
    const Worker::Answer answer = worker->ask(case_name, how, state_->setup.timeout, state_->cancel, reply);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (answer == Worker::Answer::gone) {  // it died between two cases
      if (attempt == kMostAttempts) throw EnvironmentError("[worker] got none that lives");
      continue;
    }
    if (answer == Worker::Answer::timeout)
      return broken_case(op, call, state_->setup, Code::ac502,
                         "no answer in " + std::to_string(static_cast<int>(state_->setup.timeout)) +
                             " s (--timeout); " + worker->last_words() + worker->last_printed(),
                         seconds);
    if (answer == Worker::Answer::no_memory) return left_out(op, call, checks::kNoMemory, seconds);
    if (answer == Worker::Answer::cancelled) throw checks::Interrupted{};
    if (answer != Worker::Answer::reply && worker->ended_for_memory())
      return left_out(
          op, call,
          std::string(checks::kForMemory) + " the system was short of memory, and killed the process of the case",
          seconds);
    if (answer != Worker::Answer::reply && !worker->ended_by_library())
      return left_out(op, call,
                      std::string(checks::kProcessLost) + " no kernel was at work, and " + worker->obituary() +
                          "; is there enough memory?",
                      seconds);
    if (answer != Worker::Answer::reply)
      return broken_case(op, call, state_->setup, Code::ac501, worker->obituary(), seconds);
    try {
      CaseResult result = from_wire(reply);
      if (result.name != case_name) throw Error("[worker] got the result of another case");
      if (const std::string text = worker->printed(); !text.empty()) {
        CheckResult printed;
        printed.id.kind = CheckId::Kind::printed;
        printed.note = "the kernel printed: " + text;
        result.checks.push_back(std::move(printed));
      }
      give(std::move(worker));
      return result;
    } catch (const Error& error) {
      return broken_case(op, call, state_->setup, Code::ac501,
                         std::string("its process sent no result: ") + error.what(), seconds);
    }
  }
}

std::function<CaseResult(const checks::OpDef&, const OpCall&, const checks::How&)> isolated_run(
    const WorkerSetup& setup, const std::atomic<bool>* cancel) {
  if (setup.library.empty()) return nullptr;
  const auto pool = std::make_shared<WorkerPool>(setup, cancel);
  return
      [pool](const checks::OpDef& op, const OpCall& call, const checks::How& how) { return pool->run(op, call, how); };
}

}  // namespace ampcheck::tools
