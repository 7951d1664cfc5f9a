// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/interrupt.h"

#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(600);

std::atomic<bool> cancel{false};
std::atomic<int> caught{0};
sem_t wake;  // sem_post may be called in a signal handler

extern "C" void on_signal(int number) {
  if (caught.exchange(number) != 0) ::_exit(128 + number);  // the second one skips all
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
  bool finished = false;
  struct sigaction old_int {
  }, old_term{};
  std::thread watchdog;

  void watch() {
    while (::sem_wait(&wake) != 0) {
    }
    if (caught.load() == 0) return;  // the guard's end, not a signal
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, kPatience, [&] { return finished; })) return;
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
  ::sigaction(SIGINT, &action, &state_->old_int);
  ::sigaction(SIGTERM, &action, &state_->old_term);
}

const std::atomic<bool>* InterruptGuard::flag() const { return &cancel; }
bool InterruptGuard::interrupted() const { return caught.load() != 0; }

void InterruptGuard::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->finished = true;
  state_->changed.notify_all();
}

InterruptGuard::~InterruptGuard() {
  finish();
  if (!interrupted()) {
    ::sigaction(SIGINT, &state_->old_int, nullptr);
    ::sigaction(SIGTERM, &state_->old_term, nullptr);
  }
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
