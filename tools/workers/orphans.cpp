// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

std::atomic<bool> adopts{false};

struct OwnChildren {
  std::mutex mutex;  ///< held while one is started: until it is noted, it looks like an orphan
  std::set<pid_t> all;
};
OwnChildren& own_children() {
  static OwnChildren* const all = new OwnChildren;  // never destroyed: a guard's thread may ask while the program ends
  return *all;
}

std::optional<pid_t> number(const std::string& text) {
  pid_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Children as the system lists them for each thread; nothing where it keeps no such list.
std::optional<std::vector<pid_t>> listed_children() {
  std::vector<pid_t> out;
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "children");
    if (!file) return std::nullopt;
    for (pid_t child = 0; file >> child;) out.push_back(child);
  }
  if (error) return std::nullopt;
  return out;
}

/// Among all processes those whose parent this is.
std::vector<pid_t> searched_children() {
  std::vector<pid_t> out;
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    const std::optional<pid_t> child = number(process.path().filename().string());
    if (!child) continue;
    std::ifstream file(process.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(')');  // a name may hold anything
    if (name_end == std::string::npos || line.size() < name_end + 5) continue;
    const std::string rest = line.substr(name_end + 4);  // behind the state
    if (number(rest.substr(0, rest.find(' '))) == getpid()) out.push_back(*child);
  }
  return out;
}

}  // namespace

void adopt_orphans() {
  const std::lock_guard lock(own_children().mutex);
  const std::optional<std::vector<pid_t>> listed = listed_children();
  for (const pid_t child : listed ? *listed : searched_children()) own_children().all.insert(child);
  adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

pid_t start_own_child(const std::function<pid_t()>& start) {
  const std::lock_guard lock(own_children().mutex);
  const pid_t child = start();
  if (child > 0) own_children().all.insert(child);
  return child;
}

void own_child_ended(pid_t child) {
  const std::lock_guard lock(own_children().mutex);
  own_children().all.erase(child);
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return "by itself with exit code " + std::to_string(WEXITSTATUS(status));
  return "by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
}

void end_orphans() {
  constexpr int kMostRounds = 100;  // each ends a generation; one that forks faster than that is left
  if (!adopts) return;
  const std::lock_guard lock(own_children().mutex);
  for (int round = 0; round < kMostRounds; ++round) {
    const std::optional<std::vector<pid_t>> listed = listed_children();
    bool any = false;
    for (const pid_t child : listed ? *listed : searched_children()) {
      if (own_children().all.contains(child)) continue;
      any = true;
      kill(child, SIGKILL);
      while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (!any) return;
  }
}

}  // namespace ampcheck::tools
