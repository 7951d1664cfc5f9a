// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/kernel_clock.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "src/error.h"

namespace ampcheck::tools {

namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free, "processes share it");

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] void fail() {
  throw EnvironmentError(std::string("[worker] cannot share memory: ") + std::strerror(errno));
}

}  // namespace

int KernelClock::make_file() {
  const int file = memfd_create("kernel clock", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(KernelClock)) != 0) fail();
  return file;
}

KernelClock* KernelClock::map(int file) {
  void* const at = mmap(nullptr, sizeof(KernelClock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) fail();
  return static_cast<KernelClock*>(at);  // a new file is all zeros, as a new clock is
}

void KernelClock::unmap(KernelClock* clock) { munmap(clock, sizeof(KernelClock)); }

void KernelClock::restart() {
  spent_ = 0;
  since_ = apart_ ? 0 : now();
}

void KernelClock::apart() {
  apart_ = true;
  end_apart(0);
}

std::int64_t KernelClock::begin_apart() {
  const std::int64_t before = spent_.exchange(0);
  start();
  return before;
}

void KernelClock::end_apart(std::int64_t before) {
  since_ = 0;
  spent_ = before;
}

void KernelClock::start() { since_ = now(); }

void KernelClock::stop() {
  if (const std::int64_t since = since_.exchange(0); since != 0) spent_ += now() - since;
}

double KernelClock::seconds() const {
  const std::int64_t since = since_;
  return static_cast<double>(spent_ + (since == 0 ? 0 : now() - since)) * 1e-9;
}

}  // namespace ampcheck::tools
