// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/interrupt.h"

#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(600);
/// For writing a report: a pipe that nobody reads takes none.
constexpr auto kMostWriting = std::chrono::seconds(5);
/// Within which a second signal is the first one: a terminal and a parent both send theirs.
constexpr std::int64_t kSameSignal = 300'000'000;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};  // the last one is what a batch system sends first

std::atomic<bool> cancel{false};
std::atomic<int> caught{0};
std::atomic<std::int64_t> caught_at{0};  ///< nanoseconds of the clock
sem_t wake;                              // sem_post may be called in a signal handler

std::int64_t nanoseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

extern "C" void on_signal(int number) {
  int none = 0;
  if (caught.compare_exchange_strong(none, number))
    caught_at = nanoseconds_now();
  else if (nanoseconds_now() - caught_at < kSameSignal)
    return;
  else
    ::_exit(128 + number);  // the second one skips all
  cancel.store(true);
  const int saved = errno;
  ::sem_post(&wake);
  errno = saved;
}

}  // namespace

struct InterruptGuard::State {
  std::function<void()> emergency;
  std::mutex mutex;  // held by whoever ends the program: the normal way or the emergency
  std::condition_variable changed;
  bool finished = false, over = false;
  struct sigaction before[std::size(kSignals)] = {};
  std::thread watchdog;

  void watch() {
    while (::sem_wait(&wake) != 0) {
    }
    if (caught.load() == 0) return;  // the guard's end, not a signal
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kPatience, [&] { return finished; })) {  // the normal way; it may hang in an output
      if (!changed.wait_for(lock, kMostWriting, [&] { return over; })) end_by_signal();
      return;
    }
    std::thread([] {
      std::this_thread::sleep_for(kMostWriting);
      end_by_signal();
    }).detach();
    try {
      emergency();
    } catch (const std::exception& error) {  // a full disk, a closed pipe: no reason to stay
      write_stderr(std::string("ampcheck: ") + error.what() + "\n");
    }
    end_by_signal();  // with the mutex held: finish() never returns
  }
};

InterruptGuard::InterruptGuard(std::function<void()> emergency) : state_(new State) {
  state_->emergency = std::move(emergency);
  ::sem_init(&wake, 0, 0);
  state_->watchdog = std::thread([this] { state_->watch(); });
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &state_->before[i]);
    const bool left_alone = kSignals[i] == SIGHUP && state_->before[i].sa_handler == SIG_IGN;  // nohup
    if (!left_alone) ::sigaction(kSignals[i], &action, nullptr);
  }
}

const std::atomic<bool>* interrupt_flag() { return &cancel; }
const std::atomic<bool>* InterruptGuard::flag() const { return interrupt_flag(); }
bool InterruptGuard::interrupted() const { return caught.load() != 0; }

void InterruptGuard::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->finished = true;
  state_->changed.notify_all();
}

InterruptGuard::~InterruptGuard() {
  finish();
  {
    const std::lock_guard lock(state_->mutex);
    state_->over = true;
    state_->changed.notify_all();
  }
  if (!interrupted())
    for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &state_->before[i], nullptr);
  ::sem_post(&wake);
  state_->watchdog.join();
  ::sem_destroy(&wake);
  delete state_;
}

void end_by_signal() {
  const int number = caught.load() != 0 ? caught.load() : SIGINT;
  std::signal(number, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::kill(::getpid(),
         number);  // to the process: raise() would only reach this thread, which is as good, but may be pid 1
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::_exit(128 + number);
}

}  // namespace ampcheck::tools
