// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck accept` and `ampcheck review`: a person looks at what gate left pending, and takes it over with a reason.
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "src/error.h"
#include "src/suggestion.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/gate/ci.h"
#include "tools/gate/dates.h"
#include "tools/gate/gate_report.h"
#include "tools/gate/history.h"
#include "tools/mutate/command_run.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/pager.h"

namespace ampcheck::tools {

namespace {

void require_folder(const char* verb, const std::string& folder) {
  if (folder.empty()) throw UsageError(fmt::format("[{}] got no --baseline, want the folder of the baselines", verb));
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none))
    throw UsageError(fmt::format("[--baseline] got '{}', want a folder that is there", folder));
}

bool chosen(const std::vector<std::string>& words, const std::string& op) {
  return words.empty() || std::any_of(words.begin(), words.end(),
                                      [&](const std::string& word) { return word == op || matches(word, op); });
}

/// Ops with a pending file, as the words choose.
std::vector<std::string> chosen_pending(const std::string& folder, const std::vector<std::string>& words) {
  std::vector<std::string> out = pending_ops(folder);
  std::erase_if(out, [&](const std::string& op) { return !chosen(words, op); });
  return out;
}

std::vector<Review> reviews_of(const std::string& folder, const std::vector<std::string>& ops) {
  std::vector<Review> out;
  std::error_code none;
  for (const std::string& op : ops) {
    Review review{op, std::filesystem::exists(baseline_path(folder, op), none), {}, {}};
    if (review.accepted) review.was = read_baseline(baseline_path(folder, op));
    review.now = read_baseline(pending_path(folder, op));
    out.push_back(std::move(review));
  }
  return out;
}

Code code_named(const std::string& word) {
  std::vector<std::string> names;
  for (const CodeText& known : code_texts()) {
    if (word == known.name) return known.code;
    names.emplace_back(known.name);
  }
  throw UsageError("[--waive] got '" + word + "'" + did_you_mean(word, names) + ", want a code, as AC301");
}

/// The waivers of the command line, one for each code; none without --waive.
std::vector<Waiver> waivers_of(const AcceptOptions& options) {
  if (options.waive.empty() != options.until.empty())
    throw UsageError("[accept] got --waive or --until alone, want both: a code, and the last day on which it passes");
  std::vector<Waiver> out;
  if (options.waive.empty()) return out;
  if (!is_date(options.until)) throw UsageError("[--until] got '" + options.until + "', want a day, as 2026-12-31");
  if (options.until < today()) throw UsageError("[--until] got '" + options.until + "', want a day to come");
  for (std::size_t begin = 0, end = 0; begin <= options.waive.size(); begin = end + 1) {
    end = std::min(options.waive.find(',', begin), options.waive.size());
    out.push_back({code_named(options.waive.substr(begin, end - begin)), options.until, options.reason});
  }
  return out;
}

/// Takes the findings of a state that waivers let through out of it; what is left nobody answers for.
void let_through(Baseline& state, const std::vector<Waiver>& waivers) {
  for (const Waiver& waiver : waivers) {
    const auto found = [&](const PendingFinding& f) { return f.code == waiver.code; };
    if (!std::any_of(state.findings.begin(), state.findings.end(), found)) continue;
    std::erase_if(state.waivers, [&](const Waiver& w) { return w.code == waiver.code; });
    state.waivers.push_back(waiver);
    std::sort(state.waivers.begin(), state.waivers.end(),
              [](const Waiver& a, const Waiver& b) { return a.code < b.code; });
    std::erase_if(state.findings, found);
  }
}

/// While it lives, no other process accepts into the folder. A file system that knows no locks takes none.
class OneAccepts {
 public:
  explicit OneAccepts(const std::string& folder) : file_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~OneAccepts() {
    if (file_ >= 0) close(file_);
  }
  OneAccepts(const OneAccepts&) = delete;
  OneAccepts& operator=(const OneAccepts&) = delete;

 private:
  int file_;
};

struct Accepted {
  std::vector<std::string> taken, refused;  ///< ops; and why not
};

/// One line that git prints in this folder; "" without git, or outside a repository.
std::string asked_of_git(const std::string& folder, std::vector<std::string> words) {
  constexpr double kSeconds = 5;
  words.insert(words.begin(), "git");
  try {
    const CommandRun run = run_command(words, folder, kSeconds, nullptr);
    return run.code == 0 ? run.out.substr(0, run.out.find('\n')) : "";
  } catch (const EnvironmentError&) {
    return "";
  }
}

/// Who accepts, when and at which commit.
Acceptance acceptance_here(const AcceptOptions& options) {
  const std::string& folder = options.baseline;
  Acceptance out{today(), options.reason, {}, asked_of_git(folder, {"rev-parse", "HEAD"}), {}};
  const std::string name = asked_of_git(folder, {"config", "user.name"}),
                    address = asked_of_git(folder, {"config", "user.email"});
  out.who = name + (address.empty() ? "" : (name.empty() ? "<" : " <") + address + ">");
  const passwd* const login = out.who.empty() ? getpwuid(getuid()) : nullptr;
  if (login != nullptr) out.who = login->pw_name;
  return out;
}

/// Each finding that nobody answers for.
std::string refusal(const std::string& op, const std::vector<PendingFinding>& findings) {
  std::string found, codes;
  for (const PendingFinding& f : findings) {
    found += fmt::format("{}{} in {} case{}, first '{}'", found.empty() ? "" : "; ", name(f.code), f.cases,
                         f.cases == 1 ? "" : "s", f.first);
    codes += fmt::format("{}{}", codes.empty() ? "" : ",", name(f.code));
  }
  return fmt::format("{}: {}. Outside what rounding may do: mend it, or --waive {} --until DATE", op, found, codes);
}

Accepted accept_all(const AcceptOptions& options, const std::vector<std::string>& ops,
                    const std::vector<Waiver>& waivers) {
  const Acceptance acceptance = acceptance_here(options);
  Accepted out;
  for (const std::string& op : ops) {
    Baseline state = read_baseline(pending_path(options.baseline, op));
    let_through(state, waivers);
    if (!state.findings.empty()) {
      out.refused.push_back(refusal(op, state.findings));
      continue;
    }
    const std::string path = baseline_path(options.baseline, op);
    if (std::error_code none; std::filesystem::exists(path, none)) remember(read_baseline(path), state);
    state.accepted = acceptance;
    write_baseline(path, state);
    std::error_code error;
    if (!std::filesystem::remove(pending_path(options.baseline, op), error) && error)
      throw WriteError(fmt::format("[accept] took {} over, but cannot remove '{}': {}", op,
                                   pending_path(options.baseline, op), error.message()));
    out.taken.push_back(op);
  }
  return out;
}

}  // namespace

ExitCode accept_command(const AcceptOptions& options) {
  if (in_ci()) throw UsageError("[accept] got the variable CI set, want a person: CI accepts nothing");
  require_folder("accept", options.baseline);
  if (options.reason.find_first_not_of(" \t\n") == std::string::npos)
    throw UsageError("[accept] got no --reason, want why the new state is right; it stands in the baseline");
  const std::vector<Waiver> waivers = waivers_of(options);
  const OneAccepts alone(options.baseline);
  const std::vector<std::string> ops = chosen_pending(options.baseline, options.words);
  if (ops.empty()) {
    write_stderr("ampcheck: nothing to accept: no pending file in '" + options.baseline +
                 "' (ampcheck gate writes them where something changed)\n");
    return ExitCode::nothing_ran;
  }
  const Accepted accepted = accept_all(options, ops, waivers);
  if (options.json) {
    write_stdout(
        json_text({{"schema", "ampcheck.accept/1"}, {"accepted", accepted.taken}, {"refused", accepted.refused}}));
  } else {
    for (const std::string& op : accepted.taken)
      write_stdout(fmt::format("accepted {}: {}\n", op, baseline_path(options.baseline, op)));
    for (const std::string& why : accepted.refused) write_stdout("not accepted " + why + "\n");
  }
  return accepted.refused.empty() ? ExitCode::passed : ExitCode::findings;
}

ExitCode review_command(const ReviewOptions& options) {
  require_folder("review", options.baseline);
  if (!options.output.empty()) require_writable(options.output);
  std::vector<Review> reviews = reviews_of(options.baseline, chosen_pending(options.baseline, options.words));
  if (options.tighten)
    std::erase_if(reviews, [](const Review& review) { return errors_beyond_chance(review).better.empty(); });
  if (options.json) {
    write_stdout(json_text(review_json(reviews)));
  } else {
    const Style style = stdout_style();
    std::string text;
    for (const Review& review : reviews)
      text += options.tighten ? tighten_text(review, options.baseline, style) : review_text(review, style);
    page_stdout(text);
  }
  if (!options.output.empty()) write_file(options.output, review_markdown(reviews, options.baseline));
  if (!reviews.empty()) return ExitCode::passed;
  write_stderr(options.tighten ? "ampcheck: nothing to tighten: no pending file in '" + options.baseline +
                                     "' is better than its accepted state, beyond chance (gate --seeds 4 adds cases)\n"
                               : "ampcheck: nothing to review: no pending file in '" + options.baseline + "'\n");
  return ExitCode::nothing_ran;
}

}  // namespace ampcheck::tools
