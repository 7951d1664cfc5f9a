// SPDX-License-Identifier: Apache-2.0
// How long the kernel of a case has run. --timeout is of a kernel: a judge that is slow, on a large case or a busy
// machine, convicts nobody.
#pragma once

#include <atomic>
#include <cstdint>

namespace ampcheck::tools {

/// Lies in memory that a worker shares with its supervisor. Times are of the monotonic clock, which both read alike.
/// It also says whose doing it is if the worker ends: the library's only while the library is at work.
class KernelClock {
 public:
  /// A file that holds one, for map() here and in the worker. EnvironmentError if there can be none.
  static int make_file();
  /// The clock in the file; lives to the end of the process, or until unmap(). EnvironmentError.
  static KernelClock* map(int file);
  static void unmap(KernelClock* clock);

  /// Of the supervisor, before a case. Without apart() all of the worker's time counts.
  void restart();
  /// Of the worker, once its library is loaded: that is over and no part of the case, and from now on only what lies
  /// between start() and stop() counts.
  void apart();
  void start();
  void stop();
  /// Seconds since restart() that count.
  double seconds() const;

  /// Of the worker, before it ends as its library's process did.
  void blame() { blamed_ = true; }
  /// Whether the library was at work as the worker ended, or what it did ended it. A worker that dies before it loads
  /// anything, or where its judge is at work, says nothing of the library.
  bool is_the_librarys() const { return blamed_ || since_ != 0; }

  /// What a stretch of its own begins with and leaves behind: seconds() is its alone until then.
  std::int64_t begin_apart();
  void end_apart(std::int64_t before);

 private:
  std::atomic<std::int64_t> since_{0}, spent_{0};  ///< nanoseconds; since_ is 0 while nothing counts
  std::atomic<bool> apart_{false}, blamed_{false};
};

/// Counts while it lives. Without a clock nothing.
class KernelTime {
 public:
  explicit KernelTime(KernelClock* clock) : clock_(clock) {
    if (clock_ != nullptr) clock_->start();
  }
  ~KernelTime() {
    if (clock_ != nullptr) clock_->stop();
  }
  KernelTime(const KernelTime&) = delete;
  KernelTime& operator=(const KernelTime&) = delete;

 private:
  KernelClock* clock_;
};

/// Loading a library anew has as long as a case, and takes nothing of the case's time.
class LoadingTime {
 public:
  explicit LoadingTime(KernelClock* clock) : clock_(clock), before_(clock == nullptr ? 0 : clock->begin_apart()) {}
  ~LoadingTime() {
    if (clock_ != nullptr) clock_->end_apart(before_);
  }
  LoadingTime(const LoadingTime&) = delete;
  LoadingTime& operator=(const LoadingTime&) = delete;

 private:
  KernelClock* clock_;
  std::int64_t before_;
};

}  // namespace ampcheck::tools
