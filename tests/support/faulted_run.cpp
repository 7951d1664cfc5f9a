// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulted_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "src/error.h"
#include "src/safetensors.h"
#include "tests/support/paths.h"

namespace ampcheck::testing {

namespace {

namespace fs = std::filesystem;

FolderBytes bytes_of(const std::string& folder) {
  FolderBytes out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out[fs::relative(entry.path(), folder).string()] = read_text(entry.path().string());
  return out;
}

/// Times are not the same twice.
std::string without_times(const std::string& text) {
  static const std::regex kTime("[0-9]+(\\.[0-9]+)? m?s\\b");
  return std::regex_replace(text, kTime, "T");
}

/// Where the file that names the processor cannot be opened, a report says so, and that is all it lacks. No time is the
/// same twice.
std::string without_machine(const std::string& text) {
  static const std::regex kMachine("\"cpu\": \"[^\"]*\"|\"seconds\": ?[0-9.e-]+");
  return std::regex_replace(text, kMachine, "");
}

/// Whether a report is there to its end.
bool has_its_end(const std::string& name, const std::string& text) {
  if (name.ends_with(".json")) return nlohmann::json::accept(text);
  if (name.ends_with(".npz")) return text.size() > 22 && text.substr(text.size() - 22, 4) == "PK\5\6";
  if (name.ends_with(".safetensors")) {
    try {
      return !parse_safetensors(text, name).empty();
    } catch (const Error&) {
      return false;
    }
  }
  return text.ends_with(name.ends_with(".xml") ? "</testsuites>\n" : name.ends_with(".html") ? "</html>\n" : "\n");
}

/// Verdict, code and case of each line of a lines report: all but what was looked for beside them.
std::vector<std::string> verdicts_of(const FolderBytes& files) {
  std::vector<std::string> out;
  const auto report = files.find("a.txt");
  if (report == files.end()) return out;
  std::istringstream lines(report->second);
  for (std::string line; std::getline(lines, line);) {
    std::size_t end = 0;
    for (int field = 0; field < 4 && end != std::string::npos; ++field) end = line.find('\t', end + 1);
    out.push_back(line.substr(0, end));
  }
  return out;
}

/// Of a lines report the findings: verdict, code and case.
std::set<std::string> findings_of(const FolderBytes& files) {
  std::set<std::string> out;
  for (const std::string& line : verdicts_of(files))
    if (line.starts_with("fail")) out.insert(line);
  return out;
}

/// Every code of a finding of a kernel that a text names.
std::set<std::string> codes_in(const std::string& text) {
  static const std::regex kCode("AC[0-9]{3}");
  return {std::sregex_token_iterator(text.begin(), text.end(), kCode), std::sregex_token_iterator()};
}

bool is_one_of(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const std::array<FaultKind, 5> kFaultKinds = {
    {{"write", ENOSPC}, {"fsync", EIO}, {"rename", EACCES}, {"open", EMFILE}, {"malloc", ENOMEM}}};

std::vector<FaultedCommand> writing_commands() {
  const std::string op = tests::in_build("/custom_ops/gated_sum_none.so"),
                    few = " --regimes quick --shapes first --dtype fp32 --jobs 1 ",
                    check = "check relu softmax --no-times" + few,
                    reports = "-o json:a.json -o junit:a.xml -o html:a.html -o lines:a.txt ",
                    train = "train --model tutorial --width 4 --batch 4 --steps 4 --spread-seeds 1 --jobs 1 ";
  return {
      {"check", "", check + reports + "--run-file a.run", "program", {"a.run"}},
      {"check_wrong",
       "",
       "check softmax.dropped_tail --no-times" + few + reports + "--run-file a.run",
       "program",
       {"a.run"}},
      {"check_journal", "", check + "-o lines:a.txt --journal a.journal", "program", {"a.journal"}},
      {"check_library", "", "check " + op + " --no-times" + few + reports + "--run-file a.run", "child", {"a.run"}},
      {"check_program", "", "check " + op + " --no-times" + few + reports, "program", {}},
      {"check_worker", "", "check " + op + " --no-times" + few + reports, "--worker", {}},
      {"check_runner", "", "check " + op + " --no-times" + few + reports, "--runner", {}},
      {"resume",
       "$AMPCHECK " + check + "--run-file a.run; head -c 3000 a.run >b.run; mv b.run a.run",
       check + reports + "--run-file a.run",
       "program",
       {"a.run"}},
      {"gate", "", "gate " + op + few + "--baseline base -o json:g.json", "child", {}},
      {"accept",
       "$AMPCHECK gate " + op + few + "--baseline base",
       "accept --baseline base --reason measured",
       "program",
       {}},
      {"merge",
       "for i in 1 2; do $AMPCHECK " + check + "--shard $i/2 --run-file $i.run; done",
       "merge 1.run 2.run --no-times --jobs 1 " + reports,
       "program",
       {}},
      {"train", "", train + "--record t.trace --save t.st", "program", {"t.trace", "t.trace.bin"}},
      {"train_resumed",
       "$AMPCHECK " + train + "--record t.trace --save half.st; mv half.st from.st",
       "train --model tutorial --width 4 --batch 4 --steps 6 --spread-seeds 1 --jobs 1 --resume from.st --record "
       "t.trace "
       "--save t.st",
       "program",
       {"t.trace", "t.trace.bin"}},
      {"trace", "$AMPCHECK " + train + "--record t.trace", "trace t.trace -o html:t.html -o csv:t.csv", "program", {}},
      {"scaler_log",
       "$AMPCHECK " + train + "--record t.trace",
       "audit scaler --log t.trace -o html:s.html",
       "program",
       {}},
      {"replay", "", "replay 'softmax(x=bf16[3,4],seed=1)' --jobs 1 --save case", "program", {}, {"case/case.json"}},
      {"replay_npz", "", "replay 'softmax(x=bf16[3,4],seed=1)' --jobs 1 --save case.npz", "program", {}, {"case.npz"}},
      {"replay_safetensors",
       "",
       "replay 'softmax(x=bf16[3,4],seed=1)' --jobs 1 --save case.safetensors",
       "program",
       {},
       {"case.safetensors"}},
  };
}

FaultedRun::FaultedRun(FaultedCommand command) : command_(std::move(command)) {
  fs::create_directory(folder_.path() + "/before");
  if (!command_.before.empty())
    shell("cd '" + folder_.path() + "/before'; { " + command_.before + "; } >/dev/null 2>&1");
  before_ = bytes_of(folder_.path() + "/before");
  const std::string counts = folder_.path() + "/counts";
  std::ofstream(counts, std::ios::binary) << std::string(kFaultKinds.size() * sizeof(long), '\0');
  clean_ = run(folder_.path() + "/clean", "");
  EXPECT_TRUE(clean_.result.exit_code == 0 || clean_.result.exit_code == 1 || clean_.result.exit_code == 7)
      << command_.name << clean_.result.err;
  const std::string bytes = read_text(counts);
  calls_.resize(kFaultKinds.size());
  std::memcpy(calls_.data(), bytes.data(), bytes.size());
}

FaultedRun::Outcome FaultedRun::run(const std::string& folder, const std::string& fault) {
  std::error_code none;
  if (!fs::exists(folder)) fs::copy(folder_.path() + "/before", folder, fs::copy_options::recursive);
  const std::string environment = fault == "none" ? ""
                                                  : "env FAULT='" + fault + "' FAULT_IN=" + command_.role +
                                                        (fault.empty() ? " FAULT_COUNTS=../counts" : "") +
                                                        " LD_PRELOAD=" + tests::in_build("/tests/fault.so") + " ";
  Outcome out{shell("cd '" + folder + "'; exec timeout -k 1 60 " + environment + "\"$AMPCHECK\" " + command_.words),
              {}};
  out.files = bytes_of(folder);
  return out;
}

/// Where memory is missing, what is told beside verdicts (causes, what data does not show) may be less. A verdict is
/// another one only where that is said.
bool FaultedRun::verdicts_are_due(const Outcome& faulted) const {
  const std::vector<std::string> clean = verdicts_of(clean_.files);
  return (!clean.empty() && verdicts_of(faulted.files) == clean) || says_memory(faulted);
}

/// Whether its words or its reports say that memory was missing.
bool FaultedRun::says_memory(const Outcome& faulted) {
  return contains(faulted.result.out + faulted.result.err, "memory") ||
         std::ranges::any_of(faulted.files, [](const auto& file) { return contains(file.second, "[memory]"); });
}

/// A call that fails says nothing of a kernel: what is found is found without it, too.
void FaultedRun::expect_no_new_finding(const Outcome& faulted, const std::string& where) const {
  const std::set<std::string> found = findings_of(faulted.files), due = findings_of(clean_.files),
                              codes = codes_in(faulted.result.out + faulted.result.err),
                              due_codes = codes_in(clean_.result.out + clean_.result.err);
  EXPECT_TRUE(std::ranges::includes(due, found)) << where << "a finding that is none: " << faulted.result.out;
  EXPECT_TRUE(std::ranges::includes(due_codes, codes)) << where << faulted.result.out << faulted.result.err;
}

/// As before the command or as it makes it; or a whole report that says which case had no memory.
void FaultedRun::expect_whole_files(const Outcome& faulted, std::size_t kind, const std::string& where) const {
  const bool less = kFaultKinds.at(kind).error == ENOMEM && verdicts_are_due(faulted);
  for (const auto& [name, bytes] : faulted.files) {
    if (is_one_of(name, command_.growing)) continue;
    const auto old = before_.find(name), whole = clean_.files.find(name);
    EXPECT_TRUE(
        (old != before_.end() && bytes == old->second) ||
        (whole != clean_.files.end() && (without_machine(bytes) == without_machine(whole->second) ||
                                         ((less || is_one_of(name, command_.twice)) && has_its_end(name, bytes)))))
        << where << name << " is torn or left over, " << bytes.size() << " bytes";
  }
}

/// The exit code that is due and words that say what failed; or all went on as if nothing had failed, but for a case
/// whose report says that it had no memory.
void FaultedRun::expect_said(const Outcome& faulted, std::size_t kind, const std::string& where) const {
  const auto& [code, out, err, seconds] = faulted.result;
  const int error = kFaultKinds.at(kind).error;
  if (code == clean_.result.exit_code) {
    EXPECT_EQ(faulted.files.size(), clean_.files.size()) << where << "a file is missing, and it says nothing";
    EXPECT_TRUE(without_times(out) == without_times(clean_.result.out) ||
                (error == ENOMEM && verdicts_are_due(faulted)))
        << where << out;
    return;
  }
  const std::vector<int> due = error == ENOMEM   ? std::vector{4, 5, 6}
                               : error == EMFILE ? std::vector{2, 6, 8}
                                                 : std::vector{8};
  EXPECT_TRUE(std::find(due.begin(), due.end(), code) != due.end()) << where << "exit code " << code << out << err;
  EXPECT_TRUE(error == ENOMEM ? says_memory(faulted) : contains(out + err, std::strerror(error)))
      << where << "without a reason: " << err;
}

std::vector<long> FaultedRun::points(std::size_t kind, long most) const {
  std::mt19937_64 random(1);
  std::set<long> out;
  const auto draw = [&](long calls, long some) {
    for (long i = 0; i < some; ++i)
      out.insert(calls <= some
                     ? 1 + i % std::max(calls, 1L)
                     : 1 + (i * calls + static_cast<long>(random() % static_cast<unsigned long>(calls))) / some);
  };
  if (const long all = calls(kind); all > 0) {
    constexpr long kBeginning = 1000;
    const bool memory = kFaultKinds.at(kind).error == ENOMEM;
    if (memory) draw(std::min(all, kBeginning), most / 2);
    draw(all, memory ? most - most / 2 : most);
  }
  return {out.begin(), out.end()};
}

void FaultedRun::expect_nothing_lost(std::size_t kind, long k, bool onwards) {
  const FaultKind& fault = kFaultKinds.at(kind);
  const std::string where =
      command_.name + ", " + fault.name + " " + std::to_string(k) + (onwards ? " and on: " : ": ");
  const std::string folder = folder_.path() + "/faulted";
  const Outcome faulted = run(
      folder, std::string(fault.name) + " " + std::to_string(k) + (onwards ? "+ " : " ") + std::to_string(fault.error));
  EXPECT_NE(faulted.result.exit_code, 124) << where << "it hangs";
  EXPECT_LT(faulted.result.exit_code, 128) << where << faulted.result.err;
  expect_whole_files(faulted, kind, where);
  expect_said(faulted, kind, where);
  expect_no_new_finding(faulted, where);
  if (faulted.files != clean_.files) {
    const Outcome again = run(folder, "none");
    if (!(command_.name == "accept" && again.result.exit_code == 4)) {  // all was taken, and its words alone were lost
      EXPECT_EQ(again.result.exit_code, clean_.result.exit_code) << where << "and then " << again.result.err;
    }
    for (const auto& [name, bytes] : clean_.files)
      if (!is_one_of(name, command_.growing)) {
        EXPECT_TRUE(again.files.contains(name) && without_machine(again.files.at(name)) == without_machine(bytes))
            << where << "and then " << name << " is another one";
      }
  }
  fs::remove_all(folder);
}

}  // namespace ampcheck::testing
