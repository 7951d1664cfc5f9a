// SPDX-License-Identifier: Apache-2.0
// `ampcheck trace FILE`: what a recorded training run met, as tables, CSV, JSON or one HTML file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checks/train/trace_record.h"
#include "src/error.h"
#include "tools/commands/commands.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/trace/clip_text.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kRows = 12;

std::string error_text(const std::optional<double>& error) { return error ? rounded_decimal(*error, 2) : "-"; }

std::string room_text(const std::optional<double>& room) { return room ? fmt::format("2^{:.1f}", *room) : "-"; }

std::string ops_table(const std::vector<TracedSum>& sums, const Style& style) {
  std::string out =
      fmt::format("  {}{:<52}{:>6}{:>10}{:>10}{:>10}{:>11}{:>11}{:>10}{:>10}{}\n", style.bold, "tensor", "dtype",
                  "flushed", "at worst", "overflow", "error here", "inherited", "headroom", "footroom", style.reset);
  const auto worst = worst_first(sums);
  for (std::size_t i = 0; i < std::min(kRows, worst.size()); ++i) {
    const TracedSum& s = *worst[i];
    out += fmt::format("  {:<52}{:>6}{:>10}{:>10}{:>10}{:>11}{:>11}{:>10}{:>10}\n", s.sum.name(), name(s.sum.dtype),
                       percent(s.sum.flushed_share()), percent(s.worst_flushed), grouped(s.sum.overflowed),
                       error_text(s.sum.local_error), error_text(s.sum.carried_error), room_text(s.least_headroom),
                       room_text(s.least_footroom));
  }
  if (worst.size() > kRows) out += fmt::format("  ... and {} more (--csv has all)\n", worst.size() - kRows);
  return out;
}

std::string parameters_table(const std::vector<TracedSum>& sums, const Style& style) {
  std::string out;
  const bool lost = std::any_of(sums.begin(), sums.end(), [](const TracedSum& s) {
    return s.sum.copy_stagnant > 0 || s.sum.second_moment_zero > 0;
  });
  for (const TracedSum& s : sums) {
    if (s.sum.phase != "optimizer") continue;
    const auto share = [&](std::int64_t part) {
      return s.sum.intended > 0 ? percent(static_cast<double>(part) / static_cast<double>(s.sum.intended)) : "-";
    };
    if (out.empty())
      out = fmt::format("\n  {}{:<52}{:>12}{:>14}{}{}\n", style.bold, "parameter", "stagnant", "from fp64",
                        lost ? "  copy stands   v is zero" : "", style.reset);
    out += fmt::format("  {:<52}{:>12}{:>14}", s.sum.op, share(s.sum.stagnant), error_text(s.sum.carried_error));
    out += lost ? fmt::format("{:>13}{:>12}\n", share(s.sum.copy_stagnant), share(s.sum.second_moment_zero)) : "\n";
  }
  return out;
}

/// Ops whose outputs are small against their terms: the errors of their inputs come out that many bits larger.
std::string cancellation_text(const std::vector<TracedSum>& sums, const Style& style) {
  constexpr std::size_t kShown = 6;
  std::vector<const TracedSum*> lossy;
  for (const TracedSum& s : sums)
    if (s.sum.most_cancelled.value_or(0) > 0) lossy.push_back(&s);
  std::stable_sort(lossy.begin(), lossy.end(),
                   [](const TracedSum* a, const TracedSum* b) { return *a->sum.cancelled > *b->sum.cancelled; });
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, lossy.size()); ++i) {
    if (i == 0)
      out = fmt::format("\n  {}{:<52}{:>12}{:>14}{}\n", style.bold, "cancels: of its inputs' accuracy, bits", "mean",
                        "most", style.reset);
    out += fmt::format(
        "  {:<52}{:>12.1f}{:>14}\n", lossy[i]->sum.name(), *lossy[i]->sum.cancelled,
        std::isinf(*lossy[i]->sum.most_cancelled) ? "all" : fmt::format("{:.1f}", *lossy[i]->sum.most_cancelled));
  }
  if (lossy.size() > kShown) out += fmt::format("  ... and {} more (--json has all)\n", lossy.size() - kShown);
  return out;
}

/// Where the loss's error comes from: to first order, per op, and what had come apart in earlier steps.
std::string loss_text(const Trace& trace, const std::vector<TracedSum>& sums, const Style& style) {
  const std::vector<LossShare> shares = loss_shares(trace, sums);
  if (shares.empty()) return "";
  std::string out = fmt::format("\n  {}{:<52}{:>16}{:>10}{}\n", style.bold, "moves the loss, by its fp64 gradient",
                                "rms per step", "share", style.reset);
  const auto row = [&](const LossShare& s, const std::string& what) {
    out += fmt::format("  {:<52}{:>16}{:>10}\n", what, rounded_decimal(s.moves, 2), percent(s.share));
  };
  for (std::size_t i = 1; i < std::min<std::size_t>(shares.size(), 7); ++i) row(shares[i], shares[i].from->sum.name());
  row(shares.front(), "(weights apart since earlier steps)");
  const std::vector<LossShare> norm = norm_shares(trace, sums);
  if (!norm.empty())
    out += fmt::format("\n  {}{:<52}{:>16}{:>10}{}\n", style.bold, "moves the norm of the gradient", "rms per step",
                       "share", style.reset);
  for (std::size_t i = 0; i < std::min<std::size_t>(norm.size(), 6); ++i) row(norm[i], norm[i].from->sum.name());
  return out;
}

/// The tensors whose errors are more than rounding, by the parameters whose gradients they move by that much.
std::string beyond_text(const std::vector<ParameterShares>& gradients) {
  std::map<std::string, std::pair<double, std::string>> by_tensor;
  for (const ParameterShares& p : gradients)
    for (const auto& share : p.shares) {
      if (p.noise || share.beyond <= 1) continue;
      auto& [most, names] = by_tensor[share.tensor];
      most = std::max(most, share.beyond);
      names += (names.empty() ? "" : ", ") + p.parameter;
    }
  std::string out;
  for (const auto& [tensor, what] : by_tensor)
    out += fmt::format("More than one rounding of its elements could: {} ({} x), in the gradient of {}\n", tensor,
                       rounded_decimal(what.first, 2), what.second);
  return out;
}

/// Which op's error is in which parameter's gradient.
std::string gradients_text(const Trace& trace, const Style& style) {
  const std::vector<ParameterShares> gradients = gradient_shares(trace);
  if (gradients.empty()) return "";
  std::string out = fmt::format("\n  {}{:<32}{:>10}   {:<52}{:>8}{:>12}{}\n", style.bold, "gradient of", "error",
                                "moved most by", "share", "all explain", style.reset);
  for (std::size_t i = 0; i < std::min(kRows, gradients.size()); ++i) {
    const ParameterShares& p = gradients[i];
    const bool known = !p.shares.empty() && !p.noise;
    out += fmt::format("  {:<32}{:>10}   {:<52}{:>8}{:>12}\n", p.parameter,
                       p.noise ? "-" : rounded_decimal(p.error / p.size, 2),
                       !known                            ? "-"
                       : p.shares.front().tensor.empty() ? "(weights apart since earlier steps)"
                                                         : p.shares.front().tensor,
                       known ? percent(p.shares.front().share) : "-", known ? percent(p.explained) : "-");
  }
  if (gradients.size() > kRows) out += fmt::format("  ... and {} more (--json has all)\n", gradients.size() - kRows);
  return out + beyond_text(gradients);
}

std::string decisions_text(const std::vector<TracedSum>& sums) {
  std::string out;
  for (const TracedSum& s : sums) {
    const TracedTensor& t = s.sum;
    if (t.decisions == 0) continue;
    const auto n = static_cast<double>(t.decisions);
    out += fmt::format(
        "\nDecisions by argmax of {}: {} of {} differ from fp64, {} could (the two largest no further apart than twice "
        "the error); margin {} in the mean, {} at least, error {}\n",
        t.name(), percent(static_cast<double>(t.flipped) / n), grouped(t.decisions),
        percent(static_cast<double>(t.undecided) / n), rounded_decimal(t.margins / n, 2),
        rounded_decimal(t.least_margin, 2), rounded_decimal(t.radii / n, 2));
  }
  return out;
}

/// Which loss scales would have lost nothing: the tensors with the fewest, and all.
std::string scales_table(const ScaleWindows& windows, const Style& style) {
  if (windows.tensors.empty()) return "";
  std::string out = fmt::format("\n  {}{:<52}{:>15}{:>15}{:>10}{}\n", style.bold, "loss scales that lose nothing",
                                "over the run", "at its worst", "in step", style.reset);
  constexpr std::size_t kShown = 6;
  const bool kept = std::any_of(windows.tensors.begin(), windows.tensors.end(), [](const auto& t) { return !t.exact; });
  for (std::size_t i = 0; i < std::min(kShown, windows.tensors.size()); ++i) {
    const ScaleWindows::OfTensor& t = windows.tensors[i];
    out += fmt::format("  {:<52}{:>15}{:>15}{:>10}\n", t.name + (t.exact ? "" : " *"), scales_text(t.run),
                       scales_text(t.narrowest), t.narrowest_step + 1);
  }
  if (windows.tensors.size() > kShown)
    out += fmt::format("  ... and {} more (--json has all)\n", windows.tensors.size() - kShown);
  if (kept) out += "  * only of what it kept: without an fp64 shadow, flushed numbers are not known\n";
  return windows.run.known ? out + (kept ? "  all but *: " : "  all: ") + scale_advice(windows.run) + "\n" : out;
}

/// At most kRows rows, each over as many steps.
std::string time_table(const Trace& trace, const ScaleWindows& windows, const Style& style) {
  const auto lossless = [&](const std::string& text) {
    return windows.by_step.empty() ? std::string() : fmt::format(" {:>14}", text);
  };
  std::string out =
      fmt::format("\n  {}{:<13} {:>9} {:>9} {:>9}{} {:>6} {:>9}   {}{}\n", style.bold, "steps", "loss", "fp64", "scale",
                  lossless("lose nothing"), "skips", "flushed", "worst tensor", style.reset);
  const std::size_t count = trace.steps.size(), rows = std::min(kRows, count);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t begin = row * count / rows, end = (row + 1) * count / rows;
    const TracedStep &first = trace.steps[begin], &last = trace.steps[end - 1];
    std::int64_t skips = 0;
    StepFlushes flushes;
    for (std::size_t i = begin; i < end; ++i) skips += !trace.steps[i].stepped;
    for (const TracedTensor& t : trace.tensors)
      if (t.step >= first.step && t.step <= last.step) flushes.add(t);
    checks::train::LosslessScales scales;
    for (auto of = windows.by_step.lower_bound(first.step); of != windows.by_step.end() && of->first <= last.step; ++of)
      scales.narrow(of->second);
    out += fmt::format(
        "  {:<13} {:>9} {:>9} {:>9}{} {:>6} {:>9}   {}\n",
        first.step == last.step ? std::to_string(first.step + 1) : fmt::format("{}-{}", first.step + 1, last.step + 1),
        rounded_decimal(last.loss, 4), last.fp64_loss ? rounded_decimal(*last.fp64_loss, 4) : "-",
        rounded_decimal(last.scale, 6), lossless(scales_text(scales)), skips,
        flushes.nonzero > 0 ? percent(flushes.share()) : "-",
        flushes.worst != nullptr ? fmt::format("{} {}", flushes.worst->name(), percent(flushes.worst->flushed_share()))
                                 : "");
  }
  return out;
}

std::string faults_text(const Trace& trace) {
  constexpr int kShown = 8;
  std::string out;
  int seen = 0;
  for (const TracedTensor& t : trace.tensors)
    if ((t.role == "producer" || t.role == "killer") && ++seen <= kShown)
      out += fmt::format("  step {:<6} {:<10} {}\n", t.step + 1, t.role, t.name());
  if (seen > kShown) out += fmt::format("  ... and {} more (--csv has all)\n", seen - kShown);
  return out.empty() ? out : "\nNon-finite values:\n" + out;
}

/// Dtypes of the backward pass of the first step looked at: what its ops wrote and what was cast.
std::string backward_dtypes_text(const Trace& trace) {
  std::map<std::string, int> written, casts;
  int tensors = 0;
  for (const TracedTensor& t : trace.tensors) {
    if (t.step != trace.tensors.front().step || t.phase != "backward") continue;
    ++tensors;
    ++written[name(t.dtype)];
    if (t.cast) ++casts[t.from + " to " + name(t.dtype)];
  }
  if (casts.empty()) return "";
  const auto list = [](const std::map<std::string, int>& kinds) {
    std::string out;
    for (const auto& [what, count] : kinds) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
    return out;
  };
  return fmt::format("Casts in a backward pass: {}; of the {} tensors that it writes: {}\n", list(casts), tensors,
                     list(written));
}

std::string casts_text(const Trace& trace) {
  const CastNotes notes = cast_notes(trace);
  std::string out;
  for (const auto& [what, count] : notes.kinds) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  if (out.empty()) return out;
  out = "\nCasts in a forward pass: " + out + "\n" + backward_dtypes_text(trace);
  for (const CastNotes::Repeated& r : notes.repeated)
    out += fmt::format("  one tensor cast to {} {} times: the input '{}' of {}\n", name(r.to), r.ops.size(), r.tensor,
                       fmt::join(r.ops, ", "));
  return out;
}

/// Notes under a heading: those that the net asked for, or the others.
std::string notes_text(const std::vector<DtypeNote>& notes, bool asked, const char* heading) {
  std::string out;
  std::size_t shown = 0, all = 0;
  for (const DtypeNote& note : notes) {
    if ((note.kind == "asked") != asked || ++all > kRows) continue;
    ++shown;
    out += fmt::format("  {:<18}{}\n", note.op, note.text);
  }
  if (all > shown) out += fmt::format("  ... and {} more (--json has all)\n", all - shown);
  return out.empty() ? out : heading + out;
}

std::string dtypes_text(const Trace& trace) {
  const std::vector<DtypeNote> notes = dtype_notes(trace);
  return notes_text(notes, false, "\nDtypes that autocast chose by itself:\n") +
         notes_text(notes, true, "\nDtypes that the net asked for (cast_inputs, or a region that is off):\n");
}

/// Of the first step that has any: what the device waited for.
std::string moves_text(const Trace& trace) {
  std::string out;
  std::size_t shown = 0, of_step = 0;
  for (const TracedMove& m : trace.moves) {
    if (m.step != trace.moves.front().step || ++of_step > kRows) continue;
    ++shown;
    out += fmt::format("  {:<18} {} B of {} put in by the host after {} kernels, for which it waited\n",
                       m.after.empty() ? "(begin)" : "after " + m.after, grouped(m.bytes), m.what, grouped(m.launched));
  }
  if (of_step > shown) out += fmt::format("  ... and {} more (--json has all)\n", of_step - shown);
  return out.empty() ? out : "\nMoved to the device late (before the first op it costs no wait):\n" + out;
}

std::string clips_text(const Trace& trace) {
  std::vector<ClipAndDecay> steps;
  for (const TracedStep& step : trace.steps) steps.push_back({step.clipping, step.decay});
  std::string out;
  if (const std::string clips = clipping_text(steps); !clips.empty()) out += "\nClipped: " + clips + "\n";
  if (const std::string decay = decay_text(steps); !decay.empty()) out += "\nWeight decay: " + decay + "\n";
  return out;
}

/// What each of several optimizers skipped and clipped.
std::string optimizers_text(const Trace& trace) {
  std::string out;
  for (std::size_t k = 0; k < trace.optimizers.size(); ++k) {
    std::int64_t skipped = 0, of = 0;
    std::vector<ClipAndDecay> own;
    for (const TracedStep& step : trace.steps) {
      if (k >= step.optimizers.size()) continue;
      ++of;
      skipped += step.optimizers[k].stepped ? 0 : 1;
      own.push_back({step.optimizers[k].clipping, {}});
    }
    const std::string clips = clipping_text(own);
    out += fmt::format("  {}: {} of {} steps skipped{}\n", trace.optimizers[k], skipped, of,
                       clips.empty() ? "" : "; clipped in " + clips);
  }
  return out.empty() ? out : "\nOptimizers:\n" + out;
}

std::string text_of(const Trace& trace, const std::vector<TracedSum>& sums, const Style& style) {
  std::string out =
      fmt::format("{}{}, scaler {}, seed {}: {} of {} steps, {} tensors{}{}\n", style.bold,
                  net_in(trace.model, trace.dtype_text() + (trace.fp8.empty() ? "" : " (" + trace.fp8 + ")"),
                         trace.autocast, trace.autocast_tables),
                  trace.scaler, trace.seed, trace.steps.size(), trace.steps_wanted, grouped(std::ssize(trace.tensors)),
                  trace.torn ? "; the last line is cut off" : "", style.reset);
  if (trace.missing) out += missing_text(*trace.missing) + "\n";
  if (trace.steps.empty()) return out;
  const ScaleWindows windows =
      trace.dtype == name(Dtype::fp16) ? scale_windows(trace) : ScaleWindows();  // bf16 needs no loss scale
  return out + "\n" + ops_table(sums, style) + loss_text(trace, sums, style) + gradients_text(trace, style) +
         cancellation_text(sums, style) + decisions_text(sums) + parameters_table(sums, style) +
         scales_table(windows, style) + time_table(trace, windows, style) + clips_text(trace) + optimizers_text(trace) +
         faults_text(trace) + casts_text(trace) + dtypes_text(trace) + moves_text(trace);
}

}  // namespace

ExitCode trace_command(const TraceOptions& options) {
  require_readable(options.file);
  for (const ReportFile& report : options.reports) {
    std::error_code none;
    for (const std::string& own : {options.file, checks::train::statistics_path(options.file)})
      if (std::filesystem::is_regular_file(report.path, none) && std::filesystem::equivalent(report.path, own, none))
        throw UsageError("[-o] got '" + report.path + "', which is the trace, want another file");
    require_writable(report.path);
  }
  const Trace trace = [&] {
    try {
      return read_trace(options.file);
    } catch (const Error& error) {  // no trace
      throw UsageError(error.what());
    }
  }();
  const std::vector<TracedSum> sums = summed(trace);
  for (const ReportFile& report : options.reports) write_file(report.path, report.text(trace));
  if (options.csv)
    write_stdout(trace_csv(trace));
  else
    write_stdout(options.json ? trace_json(trace, sums) : text_of(trace, sums, stdout_style()));
  if (trace.missing && (options.json || options.csv)) write_stderr("ampcheck: " + missing_text(*trace.missing) + "\n");
  return trace.steps.empty() ? ExitCode::nothing_ran : trace.missing ? ExitCode::incomplete : ExitCode::passed;
}

}  // namespace ampcheck::tools
