// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/audited_library.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <new>
#include <optional>
#include <utility>

#include "checks/scaler/library.h"
#include "tools/choose/sandbox_choice.h"
#include "tools/commands/audited_process.h"
#include "tools/commands/audited_wire.h"
#include "tools/workers/limits.h"
#include "tools/workers/message.h"
#include "tools/workers/sandbox.h"

namespace ampcheck::tools {

namespace {

using namespace audited;

std::string loaded() { return "as it was loaded"; }
constexpr std::size_t kShownCalls = 12;

/// "in these calls: scale, backward, ...": the last of many.
template <class Call>
When when_of(std::span<const Call> calls) {
  return [calls] {
    std::string out = calls.size() > kShownCalls ? "..." : "";
    for (const Call& call : calls.last(std::min(kShownCalls, calls.size()))) {
      if (!out.empty()) out += ", ";
      out += call.str();
    }
    return "in these calls: " + out;
  };
}

class Scaler : public ApartSubject {
 public:
  explicit Scaler(const AuditedLibrary& library) : library_(library) { start(); }
  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    const std::vector<Call> one[] = {{calls.begin(), calls.end()}};
    std::vector<std::vector<Reply>> out;
    ask(setup, one, out);
    return std::move(out.front());
  }
  std::vector<std::vector<Reply>> run_each(const Setup& setup, std::span<const std::vector<Call>> sequences) override {
    std::vector<std::vector<Reply>> out;
    try {
      ask(setup, sequences, out);
    } catch (const ProcessEnded&) {
      // Answers come many at a time, so that some were lost: one at a time shows which calls ended it.
      start();
      for (const std::vector<Call>& calls : sequences.subspan(out.size())) out.push_back(run(setup, calls));
    }
    return out;
  }
  bool sets_window() const override { return sets_window_; }
  void unload() override { process_->unload(); }

 private:
  void start() {
    process_.emplace("scaler", library_);
    process_->answer(loaded, [&](In& in) { in(sets_window_); });
  }
  /// `out` has what was answered, also where this throws.
  void ask(const Setup& setup, std::span<const std::vector<Call>> sequences, std::vector<std::vector<Reply>>& out) {
    Out request;
    fields_of_setup(request, setup);
    request.count(sequences.size(), 0);
    for (const std::vector<Call>& calls : sequences)
      field_list(request, calls, 0, [&](const Call& call) { fields_of_call(request, call); });
    process_->send(request.take(), when_of<Call>(sequences.front()));
    for (const std::vector<Call>& calls : sequences) {
      std::vector<Reply> replies;
      process_->answer(when_of<Call>(calls), [&](In& in) {
        field_list(in, replies, 40, [&](Reply& reply) { fields_of_reply(in, reply); });
        if (replies.size() > calls.size()) throw Error("more replies than calls");
      });
      out.push_back(std::move(replies));
    }
    process_->no_more(when_of<Call>(sequences.back()));
  }

  AuditedLibrary library_;
  std::optional<Process> process_;
  bool sets_window_ = false;
};

class ApartLoopOfLibrary : public ApartLoop {
 public:
  explicit ApartLoopOfLibrary(const AuditedLibrary& library) : process_("loop", library) {
    process_.answer(loaded, [&](In& in) {
      for (bool& has : has_) in(has);
    });
  }
  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    Out request;
    fields_of_loop_setup(request, setup);
    request.count(calls.size(), 0);
    for (const LoopCall& call : calls) fields_of_loop_call(request, call);
    std::vector<LoopReply> out;
    const When when = when_of(calls);
    process_.send(request.take(), when);
    process_.answer(when, [&](In& in) {
      field_list(in, out, 24, [&](LoopReply& reply) { fields_of_loop_reply(in, reply); });
      if (out.size() > calls.size()) throw Error("more replies than calls");
    });
    process_.no_more(when);
    return out;
  }
  bool has(Ability ability) const override { return has_[static_cast<std::size_t>(ability)]; }
  void unload() override { process_.unload(); }

 private:
  Process process_;
  bool has_[std::size(kAbilities)] = {};
};

// ---- The process.

/// Answers, on their way. Many small ones go together: a message each costs more than most calls do.
class Answers {
 public:
  /// What `say` writes, or what is thrown instead. False if nobody listens.
  template <class Say>
  bool add(const Say& say);
  bool flush() { return write_whole(kAnswered, std::exchange(waiting_, {})); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kBytes = 1 << 15;
  static constexpr auto kLate = std::chrono::milliseconds(10);  ///< a slow library is seen to answer

  const pid_t self_ = getpid();
  std::string waiting_;
  Clock::time_point flushed_ = Clock::now();
};

template <class Say>
bool Answers::add(const Say& say) {
  Said said = Said::done;
  std::string text;
  Out rest;
  const auto failed = [&](Said how, const char* why) {
    said = how;
    text = why;
  };
  try {
    say(rest);
  } catch (const LibraryError& error) {
    failed(Said::library_error, error.what());
  } catch (const EnvironmentError& error) {
    failed(Said::environment_error, error.what());
  } catch (const std::bad_alloc&) {
    failed(Said::no_memory, "");
  } catch (const std::exception& error) {
    failed(Said::threw, error.what());
  }
  if (getpid() != self_) _exit(0);  // a fork of the library's, come this far
  Out out;
  out(static_cast<int>(said));
  out(text);
  waiting_ += framed(out.take() + (said == Said::done ? rest.take() : ""));
  const auto now = Clock::now();
  if (waiting_.size() < kBytes && now - flushed_ < kLate) return true;
  flushed_ = now;
  return flush();
}

/// One answer a sequence.
bool answer_of_scaler(Subject& subject, const std::string& request, Answers& answers) {
  In in(request);
  Setup setup;
  fields_of_setup(in, setup);
  std::vector<Call> calls;
  for (std::size_t sequences = in.count(0, 8); sequences > 0; --sequences) {
    field_list(in, calls, 40, [&](Call& call) { fields_of_call(in, call); });
    const bool heard = answers.add([&](Out& out) {
      const std::vector<Reply> replies = subject.run(setup, calls);
      field_list(out, replies, 0, [&](const Reply& reply) { fields_of_reply(out, reply); });
    });
    if (!heard) return false;
  }
  return true;
}

bool answer_of_loop(Loop& loop, const std::string& request, Answers& answers) {
  In in(request);
  LoopSetup setup;
  std::vector<LoopCall> calls;
  fields_of_loop_setup(in, setup);
  field_list(in, calls, 40, [&](LoopCall& call) { fields_of_loop_call(in, call); });
  return answers.add([&](Out& out) {
    const std::vector<LoopReply> replies = loop.run(setup, calls);
    field_list(out, replies, 0, [&](const LoopReply& reply) { fields_of_loop_reply(out, reply); });
  });
}

/// Of what was loaded by `load`: `describe` writes its abilities, `answer` runs calls.
template <class Load, class Describe, class Answer>
void serve(const std::string& path, const Load& load, const Describe& describe, const Answer& answer) {
  Answers answers;
  decltype(load(path)) subject;
  bool heard = answers.add([&](Out& out) {
    if (libraries_are_sandboxed()) enter_sandbox(path);
    subject = load(path);
    describe(*subject, out);
  });
  heard = answers.flush() && heard;
  for (std::string request; heard && subject && receive_message(kAsked, request);) {
    heard = answer(*subject, request, answers) && answers.flush();
  }
}

}  // namespace

std::unique_ptr<ApartSubject> scaler_apart(const AuditedLibrary& library) { return std::make_unique<Scaler>(library); }

std::unique_ptr<ApartLoop> loop_apart(const AuditedLibrary& library) {
  return std::make_unique<ApartLoopOfLibrary>(library);
}

ExitCode audited_main(int argc, char** argv) {
  if (argc != 4) return ExitCode::usage;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_memory(Device::cpu);
  if (std::string_view(argv[2]) == "scaler")
    serve(
        argv[3], library_scaler, [](const Subject& s, Out& out) { out(s.sets_window()); }, answer_of_scaler);
  else
    serve(
        argv[3], library_loop,
        [](const Loop& loop, Out& out) {
          for (const Ability ability : kAbilities) out(loop.has(ability));
        },
        answer_of_loop);
  std::exit(0);  // the library is unloaded as by a program of the user's
}

}  // namespace ampcheck::tools
