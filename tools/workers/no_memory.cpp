// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/no_memory.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string_view>
#include <typeinfo>

#include "tools/report/exit_code.h"
#include "tools/workers/runner_channel.h"
#include "tools/workers/worker_channel.h"

namespace ampcheck::tools {

namespace {

std::terminate_handler as_usual = nullptr;

[[noreturn]] void end_with(int file, std::string_view last_words) {
  write_whole(file, last_words);
  _exit(static_cast<int>(ExitCode::environment));
}

[[noreturn]] void end_with(std::span<const std::uint64_t> answer) {
  end_with(kReplies, {reinterpret_cast<const char*>(answer.data()), answer.size_bytes()});
}

/// Whether the first word of this process's command line, behind the program, is that one. Takes no memory.
bool is_started_as(std::string_view word) {
  static char line[256];
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? 0 : read(file, line, sizeof line);
  if (file >= 0) close(file);
  const std::string_view words(line, got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::size_t program = words.find('\0');
  return program != std::string_view::npos && words.substr(program + 1).starts_with(word);
}

[[noreturn]] void end_without_memory() {
  if (is_started_as("--worker")) end_worker_without_memory();
  if (is_started_as("--runner")) end_runner_without_memory();
  end_with(STDERR_FILENO, "ampcheck: not enough memory\n");
}

[[noreturn]] void end_for_memory() {
  const std::type_info* const thrown = abi::__cxa_current_exception_type();
  if (thrown != nullptr && *thrown == typeid(std::bad_alloc)) end_without_memory();
  as_usual();
  std::abort();
}

/// Libraries in C end the process by themselves where a call for memory failed, or trip over what it gave.
extern "C" void on_crash(int number) {
  if (errno == ENOMEM) end_without_memory();
  std::signal(number, SIG_DFL);
  raise(number);
}

/// Before all other static objects, which take memory too.
struct FromTheStart {
  FromTheStart() {
    as_usual = std::set_terminate(end_for_memory);
    for (const int number : {SIGABRT, SIGSEGV}) std::signal(number, on_crash);
  }
};
[[gnu::init_priority(101)]] const FromTheStart from_the_start;

}  // namespace

void end_worker_without_memory() { end_with(std::array{kNoMemoryAnswer}); }

void end_runner_without_memory() {
  // A message as runner_main.cpp makes them: its length, how the call ended, no words, one call, no time, no
  // notes.
  end_with(std::array<std::uint64_t, 6>{5 * sizeof(std::uint64_t), static_cast<std::uint64_t>(CallEnd::no_memory), 0, 1,
                                        0, 0});
}

bool is_for_memory(const std::exception& error) {
  const std::string_view words = error.what();
  return words.find("std::bad_alloc") != std::string_view::npos ||
         words.find(std::strerror(ENOMEM)) != std::string_view::npos ||
         words.find("cannot allocate memory") != std::string_view::npos;  // as dlerror() has it
}

void leave_memory_to_libraries() { std::set_terminate(as_usual); }

}  // namespace ampcheck::tools
