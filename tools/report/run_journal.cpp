// SPDX-License-Identifier: Apache-2.0
#include "tools/report/run_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/error.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

namespace {

/// Seconds since 1970, in UTC.
double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

RunJournal::RunJournal(const std::string& path, std::size_t cases)
    : path_(path), fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (fd_ < 0) throw WriteError(fmt::format("[--journal] cannot open '{}': {}", path, std::strerror(errno)));
  write(line({{"schema", "ampcheck.journal/1"},
              {"event", "begin"},
              {"time", now()},
              {"process", getpid()},
              {"cases", cases}}));
}

RunJournal::~RunJournal() { close(fd_); }

void RunJournal::start(std::string_view case_name, std::string_view plugin, const checks::How& how) {
  Json json = {{"event", "start"}, {"time", now()}, {"case", case_name}};
  if (!plugin.empty()) json["plugin"] = plugin;
  if (how.sampled) json["sampled"] = true;
  if (how.again) json["again"] = true;
  write(line(json));
}

void RunJournal::done(const CaseResult& result) {
  write(line({{"event", "done"},
              {"time", now()},
              {"case", result.name},
              {"verdict", name(result.verdict)},
              {"code", name(result.code)},
              {"seconds", result.seconds}}));
}

void RunJournal::end() {
  write(line({{"event", "end"}, {"time", now()}}));
  if (const int error = error_.load())
    throw WriteError(fmt::format("[--journal] cannot write '{}': {}", path_, std::strerror(error)));
}

/// One write: lines of several threads do not mix, and the page cache keeps them when this process is killed.
void RunJournal::write(std::string text) {
  ssize_t put = 0;
  do put = ::write(fd_, text.data(), text.size());
  while (put < 0 && errno == EINTR);
  if (put != static_cast<ssize_t>(text.size())) error_.store(put < 0 ? errno : ENOSPC);
}

}  // namespace ampcheck::tools
