// SPDX-License-Identifier: Apache-2.0
#include "tools/report/output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "src/error.h"
#include "src/file_bytes.h"
#include "tools/report/plain_text.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

[[noreturn]] void fail(const std::string& target, int error) {
  throw WriteError("[output] cannot write " + target + ": " + std::strerror(error));
}

/// 0, or errno of the failed write.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {  // a pipe that somebody set to non-blocking
      pollfd wait{file, POLLOUT, 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool written_directly(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);
}

/// Writes all of it and closes. 0, or errno of what failed.
int write_and_close(int file, std::string_view text) {
  int error = write_all(file, text);
  if (error == 0 && ::fsync(file) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

/// A new file beside `path`: never one that is there, and never through a link that somebody put there.
std::pair<int, std::string> open_beside(const std::string& path) {
  constexpr int kMostTries = 100;
  const std::string stem = path + ".tmp" + std::to_string(::getpid());
  for (int i = 0;; ++i) {
    std::string name = i == 0 ? stem : stem + "." + std::to_string(i);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file >= 0) return {file, std::move(name)};  // nothing that takes memory once the file is there
    if (errno != EEXIST || i == kMostTries) fail("'" + path + "'", errno);
  }
}

/// A link stays one: what it points to is written, there or not yet.
std::string behind_links(const std::filesystem::path& path) {
  constexpr int kMost = 40;  // as the system follows
  std::filesystem::path out = path;
  std::error_code none;
  for (int i = 0; i < kMost && std::filesystem::is_symlink(out, none); ++i)
    out = out.parent_path() / std::filesystem::read_symlink(out, none);
  return out.string();
}

}  // namespace

void write_stdout(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text)) fail("standard output", error);
}

void hold_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(file, F_GETFD) < 0)  // it is the lowest free number, which is what open() takes
        [[maybe_unused]]
      const int held = ::open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void close_stdout() {
  if (::close(STDOUT_FILENO) != 0 && errno != EBADF) fail("standard output", errno);
}

void write_stderr(std::string_view text) { write_all(STDERR_FILENO, clean_lines(text)); }
void write_progress(std::string_view text) { write_all(STDERR_FILENO, text); }

void write_file(const std::string& name, std::string_view text) {
  if (name == "-") return write_stdout(text);
  const std::string path = behind_links(name);
  if (written_directly(path)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (const int error = file < 0 ? errno : write_and_close(file, text)) fail("'" + path + "'", error);
    return;
  }
  const auto [file, temporary] = open_beside(path);
  int error = write_and_close(file, text);
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail("'" + path + "'", error);
  }
}

void require_writable(const std::string& path) {
  if (path == "-") return;  // standard output
  const std::string place = written_directly(path) ? path : directory_of(path);
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) fail("'" + path + "'", EISDIR);
  if (::access(place.c_str(), W_OK) != 0) fail("'" + path + "'", errno);
}

std::string written_place(const std::string& name) {
  std::error_code error;
  const std::string path = behind_links(name);
  // From the root: of a file that is not there yet, "a" and "./a" would differ.
  const std::filesystem::path out = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return error ? path : out.string();
}

void require_apart(const std::vector<WrittenFile>& files) {
  std::map<std::string, std::string> seen;  // file -> option
  for (const auto& [option, path] : files) {
    if (path.empty() || path == "-" || written_directly(path)) continue;
    const auto [at, fresh] = seen.try_emplace(written_place(path), option);
    if (!fresh)
      throw UsageError("[" + option + "] got '" + path + "', which " +
                       (at->second == option ? "stands there twice" : at->second + " writes too") +
                       ", want a file of its own for each");
  }
}

void require_readable(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    throw MissingFileError("[file] got no '" + path + "', want a file of that name");
  if (std::filesystem::is_directory(path, none)) throw UsageError("[file] got the folder '" + path + "', want a file");
}

Style stdout_style() {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  const bool off =
      (no_color != nullptr && *no_color != '\0') || terminal == nullptr || std::strcmp(terminal, "dumb") == 0;
  if (off || ::isatty(STDOUT_FILENO) == 0) return {};
  return {"\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"};
}

bool stderr_is_terminal() {
  const char* const terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}

}  // namespace ampcheck::tools
