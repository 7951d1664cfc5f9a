// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/mutate/mutation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "src/error.h"
#include "src/file_bytes.h"
#include "tools/mutate/command_run.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = 2ull << 30;  ///< of a folder that is copied
constexpr const char* kRecord = "ampcheck-mutate.json";

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "ampcheck-mutate-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw WriteError("[mutate] cannot make a folder for copies, '" + name + "': " + std::strerror(errno));
  return name;
}

/// Copies files, links and folders with their times; not .git, and not the copies themselves.
void copy_folder(const fs::path& from, const fs::path& to, const fs::path& copies) {
  std::uintmax_t bytes = 0;
  for (fs::recursive_directory_iterator at(from), end; at != end; ++at) {
    const fs::path there = to / fs::relative(at->path(), from);
    if (at->is_directory() && !at->is_symlink()) {
      if (at->path().filename() == ".git" || fs::equivalent(at->path(), copies)) {
        at.disable_recursion_pending();
        continue;
      }
      fs::create_directories(there);
    } else if (at->is_symlink()) {
      fs::copy_symlink(at->path(), there);
    } else if (at->is_regular_file()) {
      bytes += at->file_size();
      if (bytes > kMostBytes)
        throw UsageError(
            "[mutate] got a folder of more than 2 GB to copy, want a smaller one: run it where the kernel is");
      fs::copy_file(at->path(), there);
      fs::last_write_time(there, at->last_write_time());
    }
  }
}

/// What the gate said of one build.
struct Judgement {
  int code = 0;
  bool took_too_long = false;
  std::string record;  ///< bits and errors of every case
  std::string by;      ///< codes of the findings
  std::string messages;
  double seconds = 0;
};

std::string codes_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  std::string out;
  if (!json.is_object() || !json.contains("ops")) return out;
  for (const Json& op : json.at("ops"))
    for (const Json& finding : op.at("findings")) {
      const std::string code = finding.at("code").get<std::string>();
      if (out.find(code) == std::string::npos) out += (out.empty() ? "" : ", ") + code;
    }
  return out;
}

std::string this_program() {
  std::error_code none;
  return fs::read_symlink("/proc/self/exe", none).string();
}

/// One copy of the folder, in which one mutant at a time is built.
class Workshop {
 public:
  Workshop(const MutationSetup& setup, fs::path folder, const fs::path& copies, const std::atomic<bool>* cancel)
      : setup_(setup), folder_(std::move(folder)), cancel_(cancel) {
    fs::create_directories(folder_);
    copy_folder(fs::current_path(), folder_, copies);
  }

  CommandRun build(const std::string& source) const {
    std::error_code none;
    fs::remove(folder_ / setup_.library, none);  // a stale one is no answer
    std::ofstream file(folder_ / setup_.kernel, std::ios::binary | std::ios::trunc);
    file << source;
    file.close();
    if (!file) throw WriteError("[mutate] cannot write the copy of '" + setup_.kernel + "'");
    return run_command(setup_.build, folder_.string(), setup_.build_seconds, cancel_);
  }
  bool built() const { return fs::exists(folder_ / setup_.library); }
  /// All files that the build command wrote, for what is judged may load others of them: names, sizes and hashes.
  std::string written() const {
    const auto begun = fs::last_write_time(folder_ / setup_.kernel);
    std::vector<std::string> files;
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(folder_)) {
      const std::string name = fs::relative(file.path(), folder_).string();
      if (!file.is_regular_file() || file.last_write_time() < begun || name == kRecord ||
          fs::equivalent(file.path(), folder_ / setup_.kernel))
        continue;
      const std::string bytes = read_bytes(file.path().string(), "mutate");
      files.push_back(fmt::format("{} {} {:016x}\n", name, bytes.size(), std::hash<std::string>()(bytes)));
    }
    std::sort(files.begin(), files.end());
    return fmt::format("{}", fmt::join(files, ""));
  }
  /// Builds the original, to know it again where a mutant compiles to the same code.
  void learn(const std::string& source) {
    if (build(source).code == 0 && built()) original_ = written();
  }
  bool is_original() const { return !original_.empty() && written() == original_; }

  Judgement judge(double seconds) const {
    std::error_code none;
    fs::remove(folder_ / kRecord, none);
    const std::string made = setup_.library.find('/') == std::string::npos ? "./" + setup_.library : setup_.library;
    std::vector<std::string> words = {setup_.program ? made : this_program(), "--no-config", "gate"};
    if (!setup_.program) words.push_back(made);
    words.insert(words.end(), setup_.selects.begin(), setup_.selects.end());
    for (const char* const word : {"--json", "--jobs", "1", "--record", kRecord}) words.emplace_back(word);
    const auto start = std::chrono::steady_clock::now();
    const CommandRun run = run_command(words, folder_.string(), seconds, cancel_);
    Judgement out{run.code, run.timed_out, {}, codes_of(run.out), run.messages, 0};
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (fs::exists(folder_ / kRecord)) out.record = read_bytes((folder_ / kRecord).string(), "mutate");
    return out;
  }

 private:
  const MutationSetup& setup_;
  fs::path folder_;
  const std::atomic<bool>* cancel_;
  std::string original_;
};

std::string last_lines(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : ":\n" + text;
}

}  // namespace

struct Mutation::State {
  MutationSetup setup;
  std::string source;
  const std::atomic<bool>* cancel = nullptr;
  fs::path copies;
  std::vector<std::unique_ptr<Workshop>> workshops;
  Judgement original;

  bool cancelled() const { return cancel != nullptr && cancel->load(); }

  void begin() {
    workshops.push_back(std::make_unique<Workshop>(setup, copies / "1", copies, cancel));
    Workshop& shop = *workshops.front();
    const CommandRun build = shop.build(source);
    if (cancelled()) return;
    if (build.timed_out)
      throw UsageError(
          fmt::format("[mutate] got no build in {:g} s, want a longer --build-timeout", setup.build_seconds));
    if (build.code != 0)
      throw UsageError(
          fmt::format("[mutate] got exit code {} of the build command in a copy of this folder (paths that "
                      "lead out of it have to be absolute){}",
                      build.code, last_lines(build.messages)));
    if (!shop.built())
      throw UsageError("[mutate] got a build command that makes no '" + setup.library +
                       "', want one that does (--check)");
    original = shop.judge(3600);
    if (cancelled()) return;
    if (original.code != 0)
      throw UsageError(
          fmt::format("[mutate] got exit code {} of the original in 'ampcheck gate', want a kernel that passes "
                      "by itself{}{}",
                      original.code, original.by.empty() ? "" : ": " + original.by, last_lines(original.messages)));
    const CommandRun broken = shop.build("#error no build command may get past this line\n" + source);
    if (broken.code == 0 && !cancelled())
      throw UsageError("[mutate] got a build command that builds another '" + setup.kernel +
                       "' than the copy's, want one that reads it from the current folder: a relative path");
    for (int i = 2; i <= setup.jobs; ++i)
      workshops.push_back(std::make_unique<Workshop>(setup, copies / std::to_string(i), copies, cancel));
    for (const auto& each : workshops) each->learn(source);
  }

  void try_one(const Workshop& shop, TriedMutant& tried) const {
    const CommandRun build = shop.build(tried.mutant.applied(source));
    if (cancelled()) return;
    if (build.timed_out || build.code != 0 || !shop.built()) {
      tried.end = MutantEnd::unbuilt;
      return;
    }
    if (shop.is_original()) {
      tried.end = MutantEnd::same;
      tried.same_code = true;
      return;
    }
    constexpr double kLeast = 30, kTimes = 20;  // a mutant may loop for ever in every case
    const Judgement judged = shop.judge(kLeast + kTimes * original.seconds);
    if (cancelled()) return;
    if (judged.code == 0) {
      tried.end = judged.record == original.record ? MutantEnd::same : MutantEnd::survived;
      return;
    }
    tried.end = MutantEnd::killed;
    tried.by = !judged.by.empty()     ? judged.by
               : judged.took_too_long ? "no end"
               : judged.code == 1     ? "AC501"
                                      : fmt::format("exit code {}", judged.code);
  }
};

Mutation::Mutation(const MutationSetup& setup, const std::string& source, const std::atomic<bool>* cancel)
    : state_(std::make_unique<State>()) {
  state_->setup = setup;
  state_->source = source;
  state_->cancel = cancel;
  state_->copies = new_folder();
  try {
    state_->begin();
  } catch (const fs::filesystem_error& error) {
    remove();
    throw WriteError(std::string("[mutate] cannot copy this folder: ") + error.what());
  } catch (...) {
    remove();
    throw;
  }
}

Mutation::~Mutation() { remove(); }

void Mutation::remove() {
  std::error_code none;
  fs::remove_all(state_->copies, none);
}

void Mutation::try_all(std::vector<TriedMutant>& mutants, const std::function<void(std::size_t)>& done) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t ended = 0;
  std::exception_ptr failed;
  const auto work = [&](const Workshop& shop) {
    for (std::size_t i = 0; (i = next++) < mutants.size() && !state_->cancelled();) {
      try {
        state_->try_one(shop, mutants[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = std::current_exception();
        return;
      }
      const std::lock_guard lock(mutex);
      done(++ended);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < state_->workshops.size(); ++i)
    threads.emplace_back(work, std::cref(*state_->workshops[i]));
  work(*state_->workshops.front());
  for (std::thread& thread : threads) thread.join();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace ampcheck::tools
