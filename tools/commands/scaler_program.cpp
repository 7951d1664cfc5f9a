// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/scaler_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <set>

#include "src/error.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

using namespace checks::scaler;

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

double number_of(const Json& j) {
  if (j.is_number()) return j.get<double>();
  if (j.is_boolean()) return j.get<bool>() ? 1 : 0;
  if (j.is_null()) return std::numeric_limits<double>::quiet_NaN();
  const std::optional<double> number = j.is_string() ? parse_number(j.get<std::string>()) : std::nullopt;
  if (!number) throw Error("a number, got " + j.dump());
  return *number;
}

Json json_of(const Setup& s) {
  return {{"init_scale", s.init_scale},
          {"growth_factor", s.growth_factor},
          {"backoff_factor", s.backoff_factor},
          {"growth_interval", s.window},
          {"enabled", s.enabled},
          {"fused", s.fused},
          {"ranks", s.ranks}};
}

Json json_of(const Call& call) {
  Json out = {{"op", name(call.op)}, {"optimizer", call.optimizer}, {"rank", call.rank}};
  if (call.op == Op::backward) {
    out["raw"] = call.raw;
    for (const double g : call.grads) out["grads"].push_back(json_number(g));
  }
  if (call.op == Op::set_window) out["growth_interval"] = call.window;
  return out;
}

Values values_of(const Json& j) {
  Values out{};
  if (!j.is_array() || j.size() != kElements) throw Error("three numbers, got " + j.dump());
  for (std::size_t i = 0; i < kElements; ++i) out[i] = number_of(j[i]);
  return out;
}

Reply reply_of(const Json& j) {
  Reply out;
  if (j.contains("error")) {
    out.error = true;
    out.text = j.at("error").is_string() ? j.at("error").get<std::string>() : j.at("error").dump();
    return out;
  }
  out.scale = number_of(j.at("scale"));
  out.other_scale = j.contains("other_scale") ? number_of(j.at("other_scale")) : out.scale;
  if (j.contains("scaled")) out.scaled = number_of(j.at("scaled"));
  out.grads = values_of(j.at("grads"));
  out.weights = values_of(j.at("weights"));
  out.steps = j.contains("steps") ? static_cast<std::int64_t>(number_of(j.at("steps"))) : -1;
  out.schedule = j.contains("schedule") ? static_cast<std::int64_t>(number_of(j.at("schedule"))) : -1;
  return out;
}

class Program : public Subject {
 public:
  explicit Program(const std::string& command) : command_(command) {
    start();
    const Json hello = answer({{"hello", 1}});
    try {
      for (const Json& one : hello.at("has")) has_.insert(one.get<std::string>());
    } catch (const std::exception&) {
      fail("{\"has\": [...]} to {\"hello\": 1}, got " + hello.dump().substr(0, 200));
    }
  }
  ~Program() override {
    close(to_);
    close(from_);
    kill(-child_, SIGTERM);  // a program that does not end with its input
    int status = 0;
    waitpid(child_, &status, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Json request = {{"setup", json_of(setup)}, {"calls", Json::array()}};
    for (const Call& call : calls) request["calls"].push_back(json_of(call));
    const Json said = answer(request);
    std::vector<Reply> out;
    try {
      for (const Json& reply : said.at("replies")) {
        out.push_back(reply_of(reply));
        if (out.back().error) break;
      }
    } catch (const std::exception& error) {
      fail(fmt::format(
          "{{\"replies\": [{{\"scale\": S, \"grads\": [a, b, c], \"weights\": [a, b, c]}}, ...]}}, got {} ({})",
          said.dump().substr(0, 200), error.what()));
    }
    if (out.size() < calls.size() && (out.empty() || !out.back().error))
      fail(fmt::format("a reply for each of {} calls, got {}", calls.size(), out.size()));
    return out;
  }
  bool has_ranks() const override { return has_.contains("ranks"); }
  bool has_schedule() const override { return has_.contains("schedule"); }
  bool has_fused() const override { return has_.contains("fused"); }
  bool has_half() const override { return has_.contains("half"); }
  bool is_fast() const override { return false; }

 private:
  void start() {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
      throw Error("[audit scaler] no pipe to '" + command_ + "'");
    child_ = fork();
    if (child_ < 0) throw Error("[audit scaler] '" + command_ + "' cannot be started");
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

  [[noreturn]] void fail(const std::string& wanted) const {
    throw UsageError("[audit scaler] '" + command_ + "' wants to answer with " + wanted +
                     " (ampcheck explain loss-scale)");
  }

  Json answer(const Json& request) {
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
        throw UsageError(fmt::format("[audit scaler] '{}' did not answer within {} s", command_, kAnswerWithin / 1000));
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

  [[noreturn]] void ended() const { throw UsageError("[audit scaler] '" + command_ + "' ended before it answered"); }

  std::string command_, held_;
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
  std::set<std::string> has_;
};

}  // namespace

std::unique_ptr<Subject> scaler_program(const std::string& command) { return std::make_unique<Program>(command); }

}  // namespace ampcheck::tools
