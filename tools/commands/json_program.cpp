// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/json_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <optional>
#include <utility>

#include "src/error.h"
#include "tools/report/numbers.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

constexpr int kAnswerWithin = 60'000;  ///< milliseconds

/// Python writes NaN and Infinity, which JSON does not have.
std::string with_quoted_numbers(const std::string& line) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < line.size();) {
    if (line[at] == '"' && (at == 0 || line[at - 1] != '\\')) inside = !inside;
    std::string_view word;
    for (const std::string_view known : {"NaN", "-Infinity", "Infinity"})
      if (!inside && word.empty() && line.compare(at, known.size(), known) == 0) word = known;
    if (word.empty()) {
      out += line[at++];
    } else {
      out += '"' + std::string(word) + '"';
      at += word.size();
    }
  }
  return out;
}

}  // namespace

JsonProgram::JsonProgram(std::string command, std::string verb, std::string page)
    : command_(std::move(command)), verb_(std::move(verb)), page_(std::move(page)) {
  start();
}

JsonProgram::~JsonProgram() {
  close(to_);
  close(from_);
  kill(-child_, SIGTERM);  // a program that does not end with its input
  int status = 0;
  waitpid(child_, &status, 0);
}

void JsonProgram::start() {
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw Error("[" + verb_ + "] no pipe to '" + command_ + "'");
  child_ = fork();
  if (child_ < 0) throw Error("[" + verb_ + "] '" + command_ + "' cannot be started");
  if (child_ == 0) {
    setpgid(0, 0);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command_.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  setpgid(child_, child_);  // whichever comes first
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

void JsonProgram::fail(const std::string& wanted) const {
  throw UsageError("[" + verb_ + "] '" + command_ + "' wants to answer with " + wanted + " (ampcheck explain " + page_ +
                   ")");
}

Json JsonProgram::answer(const Json& request) {
  std::string text = request.dump() + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(to_, text.data() + at, text.size() - at);
    if (written <= 0) ended();
    at += static_cast<std::size_t>(written);
  }
  std::size_t end = held_.find('\n');
  while (end == std::string::npos) {
    pollfd ready{from_, POLLIN, 0};
    if (poll(&ready, 1, kAnswerWithin) <= 0)
      throw UsageError(fmt::format("[{}] '{}' did not answer within {} s", verb_, command_, kAnswerWithin / 1000));
    char bytes[65536];
    const ssize_t got = read(from_, bytes, sizeof bytes);
    if (got <= 0) ended();
    held_.append(bytes, static_cast<std::size_t>(got));
    end = held_.find('\n');
  }
  const std::string line = with_quoted_numbers(held_.substr(0, end));
  held_.erase(0, end + 1);
  Json out = Json::parse(line, nullptr, false);
  if (out.is_discarded()) fail("a line of JSON, got '" + line.substr(0, 200) + "'");
  return out;
}

void JsonProgram::ended() const { throw UsageError("[" + verb_ + "] '" + command_ + "' ended before it answered"); }

std::set<std::string> JsonProgram::abilities() {
  std::set<std::string> out;
  const Json hello = answer({{"hello", 1}});
  try {
    for (const Json& one : hello.at("has")) out.insert(one.get<std::string>());
  } catch (const std::exception&) {
    fail("{\"has\": [...]} to {\"hello\": 1}, got " + hello.dump().substr(0, 200));
  }
  return out;
}

void JsonProgram::replies(const Json& request, const std::string& wanted,
                          const std::function<bool(const Json&)>& read) {
  const Json said = answer(request);
  try {
    for (const Json& reply : said.at("replies"))
      if (!read(reply)) break;
  } catch (const std::exception& error) {
    fail(fmt::format("{{\"replies\": [{}, ...]}}, got {} ({})", wanted, said.dump().substr(0, 200), error.what()));
  }
}

std::optional<std::string> refusal_of(const Json& reply) {
  if (!reply.contains("error")) return std::nullopt;
  const Json& error = reply.at("error");
  return error.is_string() ? error.get<std::string>() : error.dump();
}

double number_of(const Json& j) {
  if (j.is_number()) return j.get<double>();
  if (j.is_boolean()) return j.get<bool>() ? 1 : 0;
  if (j.is_null()) return std::numeric_limits<double>::quiet_NaN();
  const std::optional<double> number = j.is_string() ? parse_number(j.get<std::string>()) : std::nullopt;
  if (!number) throw Error("a number, got " + j.dump());
  return *number;
}

}  // namespace ampcheck::tools
