// SPDX-License-Identifier: Apache-2.0
// `ampcheck train`: a small net in mixed precision beside the same run in fp64.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string_view>

#include "checks/train/checkpoint.h"
#include "checks/train/fault_ring.h"
#include "checks/train/trace_record.h"
#include "src/amp/error.h"
#include "src/file_bytes.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "src/safetensors.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/device_choice.h"
#include "tools/commands/commands.h"
#include "tools/commands/train_choice.h"
#include "tools/commands/train_report.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"
#include "tools/trace/trace_file.h"
#include "tools/workers/child.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

/// The steps of a run, with what is written of them.
class TrainRun {
 public:
  TrainRun(const tools::TrainOptions& options, Trainer& trainer) : options_(options), trainer_(trainer) {}

  void resume_if_asked() {
    if (!options_.resume.empty()) {
      require_readable(options_.resume);
      as_usage([&] { resume(trainer_, read_bytes(options_.resume, "checkpoint"), options_.resume); });
    }
    if (trainer_.steps() >= options_.steps)
      throw UsageError(fmt::format("[--steps] got {}, want more than the {} that the checkpoint has done",
                                   options_.steps, trainer_.steps()));
  }

  void open_trace() {
    if (options_.record.empty()) return;
    if (trainer_.steps() > 0) as_usage([&] { require_trace_of(options_.record, trainer_); });
    trace_.emplace(options_.record, trainer_, options_.steps, trainer_.steps() > 0, options_.config);
    trainer_.watch()->listen(
        [&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats) {
          trace_->tensor(e, key, tally, role, stats);
          ++recorded_;
        });
    trainer_.watch()->listen_to_moves([&](const LateMove& move) { trace_->moved_late(move); });
    const Sampling& sampling = trainer_.options().sampling;
    const int kept = options_.ring < 0 ? kRingSteps : options_.ring;
    if (kept > 0 && (sampling.every > 1 || sampling.from > 0)) ring_.emplace(kept);
  }

  void run() {
    if (!options_.json) write_stdout(train_heading(trainer_));
    const int count = options_.steps;
    // A step of a large net with its shadows may take longer than an interrupt waits.
    InterruptGuard guard([done = &done_, count] {
      write_stderr(fmt::format("\nampcheck: interrupted after {} of {} steps\n", done->load(), count));
    });
    for (int i = trainer_.steps(); i < count && ended_.empty() && !guard.interrupted(); ++i)
      if (take_step(i)) show(i);
    progress_.clear();
    guard.finish();
    interrupted_ = guard.interrupted();
    if (interrupted_)
      write_stderr(fmt::format("ampcheck: interrupted after {} of {} steps\n", trainer_.steps(), count));
    if (steps_.empty() && interrupted_) end_by_signal();
    if (!ended_.empty()) write_stderr("ampcheck: the scaler ended the run at " + ended_ + "\n");
  }

  ExitCode report(double seconds) {
    const Diagnosis diagnosis = diagnose(trainer_, steps_);
    const std::vector<std::string> files = save_cases();
    if (trace_) say_where_the_trace_is();
    const Advice advice = train_advice(trainer_, diagnosis, steps_);
    write_stdout(options_.json ? train_json(trainer_, diagnosis, steps_, advice, seconds)
                               : train_summary(trainer_, diagnosis, steps_, advice, files, stdout_style()));
    if (interrupted_) end_by_signal();
    return diagnosis.left_at || !diagnosis.findings.empty() || !ended_.empty() ? ExitCode::findings : ExitCode::passed;
  }

  /// The tensors of the calls that are wrong, a file each.
  std::vector<std::string> save_cases() const {
    std::vector<std::string> out;
    if (options_.save_case.empty() || trainer_.judge() == nullptr) return out;
    for (const LiveFinding& found : trainer_.judge()->findings()) {
      std::error_code error;
      std::filesystem::create_directories(options_.save_case, error);
      if (error)
        throw WriteError("[--save-case '" + options_.save_case + "'] got " + error.message() + ", want a folder");
      out.push_back(fmt::format("{}/{}.step{}.safetensors", options_.save_case, found.call, found.step + 1));
      write_file(out.back(), safetensors_bytes(found.tensors.tensors));
    }
    return out;
  }

  bool has_steps() const { return !steps_.empty(); }

 private:
  /// False where the scaler's rule ended the run: at the floor of its scale it may.
  bool take_step(int i) {
    try {
      if (ring_) ring_->keep(trainer_);
      steps_.push_back(trainer_.step());
    } catch (const AmpError& error) {
      ended_ = fmt::format("step {}: {}", i + 1, error.what());
      if (ring_ && !steps_.empty()) whole_ += write_ring();
      return false;
    }
    ++done_;
    if (trace_) trace_->step(steps_.back());
    if (ring_ && ring_->faulted(steps_.back())) whole_ += write_ring();
    return true;
  }

  void show(int i) {
    const std::string line =
        train_step_line(steps_.back(), options_.steps,
                        trainer_.watch() != nullptr ? worst_of(trainer_.watch()->of_step()) : std::nullopt);
    if (progress_.on())
      progress_.show(static_cast<std::size_t>(i) + 1, static_cast<std::size_t>(options_.steps), 0, line);
    else if (!options_.json)
      write_stdout(line + "\n");
  }

  /// Which steps the trace got, as text.
  std::string write_ring() {
    const StepResult& last = steps_.back();
    if (const std::optional<int> first = ring_->write(trainer_, last, *trace_))
      return *first > last.step ? "" : fmt::format(", of steps {} to {} all", *first + 1, last.step + 1);
    write_stderr(
        fmt::format("ampcheck: step {} came out with another loss when it was run again: this machine does not compute "
                    "the same each time\n",
                    last.step + 1));
    return "";
  }

  void say_where_the_trace_is() const {
    if (recorded_ == 0)
      write_stderr(
          "ampcheck: the trace has no tensor: --ops, --from and --every leave none of these steps' ops and "
          "parameters\n");
    if (options_.json) return;
    const int every = trainer_.options().sampling.every;
    write_stdout(
        fmt::format("\nTrace{1}: ampcheck trace {0}   or   ampcheck trace {0} -o html:run.html\n", options_.record,
                    every > 1 ? fmt::format(" of every {}th step{} (--every 1 has all)", every, whole_) : whole_));
  }

  const tools::TrainOptions& options_;
  Trainer& trainer_;
  ProgressLine progress_;
  std::vector<StepResult> steps_;
  std::atomic<int> done_ = 0;
  std::optional<TraceWriter> trace_;
  std::int64_t recorded_ = 0;
  std::optional<FaultRing> ring_;
  std::string whole_;  ///< what of a sampled trace is whole
  std::string ended_;  ///< why the scaler ended the run; empty: it did not
  bool interrupted_ = false;
};

}  // namespace

ExitCode train_command(const TrainOptions& options) {
  require_device(options.device);
  require_outputs(options);
  keep_freed_memory();
  set_threads(options.jobs);
  const checks::train::TrainOptions wanted = as_usage([&] { return trainer_options(options); });
  if (wanted.own_net) run_kernels_here(wanted.own_net->own_ops, options, options.device);
  const std::unique_ptr<Trainer> trainer = as_usage([&] { return std::make_unique<Trainer>(wanted); });
  as_usage([&] { trainer->prepare(); });
  refuse_unused(options.autocast && std::string_view(trainer->autocast_list()) == "none", "--autocast",
                "--dtype fp16 or bf16, or a layer with a region of its own");
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& path : {options.save, options.record})
    if (!path.empty()) require_writable(path);
  TrainRun run(options, *trainer);
  run.resume_if_asked();
  run.open_trace();
  run.run();
  if (!run.has_steps()) return ExitCode::findings;
  if (!options.save.empty()) write_file(options.save, checkpoint_bytes(*trainer));
  return run.report(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace ampcheck::tools
