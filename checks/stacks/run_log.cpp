// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/stacks/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/stacks/op_records.h"

namespace ampcheck::checks::stacks {

namespace {

bool bad(const std::optional<double>& number) { return number && !std::isfinite(*number); }
bool good(const std::optional<double>& number) { return number && std::isfinite(*number); }

constexpr std::pair<const char*, const char*> kKeys[] = {{"step", "step"},
                                                         {"iter", "step"},
                                                         {"iteration", "step"},
                                                         {"global_step", "step"},
                                                         {"loss", "loss"},
                                                         {"train_loss", "loss"},
                                                         {"training_loss", "loss"},
                                                         {"lm_loss", "loss"},
                                                         {"grad_norm", "grad_norm"},
                                                         {"gnorm", "grad_norm"},
                                                         {"gradnorm", "grad_norm"},
                                                         {"norm", "grad_norm"},
                                                         {"lr", "lr"},
                                                         {"learning_rate", "lr"}};
constexpr const char* kColumns[] = {"step", "loss", "grad_norm", "lr"};

bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// The number that follows a key: behind blanks, '=', ':' or '|'.
std::string_view number_behind(std::string_view rest) {
  const std::size_t begin = std::min(rest.find_first_not_of(" \t=:|\"'"), rest.size());
  rest.remove_prefix(begin);
  std::size_t end = 0;
  while (end < rest.size() && (word_char(rest[end]) || rest[end] == '.' || rest[end] == '-' || rest[end] == '+')) ++end;
  while (end > 0 && rest[end - 1] == '.') --end;
  return begin == 0 ? "" : rest.substr(0, end);
}

/// "step: 10 loss: 2.3 grad_norm: 0.9": the numbers behind known words, in the order of kColumns; false without a loss.
bool words_of(std::string_view line, std::string (&out)[4]) {
  for (std::string& one : out) one.clear();
  for (std::size_t at = 0; at < line.size();) {
    if (!word_char(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && word_char(line[end])) ++end;
    std::string word(line.substr(at, end - at));
    std::transform(word.begin(), word.end(), word.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    for (const auto& [key, column] : kKeys) {
      if (word != key) continue;
      const std::string_view number = number_behind(line.substr(end));
      for (std::size_t k = 0; k < 4; ++k)
        if (std::string_view(column) == kColumns[k] && out[k].empty() && number_in(number)) out[k] = number;
    }
    at = end;
  }
  return !out[1].empty();
}

/// Lines of no known framework as the CSV that the reader of logs knows; empty if they say no loss either.
std::string as_table(std::string_view text) {
  std::string out = "step,loss,grad_norm,lr,at\n";
  std::size_t at = 0;
  std::int64_t number = 0, found = 0;
  while (const auto line = next_line(text, at)) {
    ++number;
    std::string words[4];
    if (!words_of(*line, words)) continue;
    ++found;
    out += fmt::format("{},{},{},{},{}\n", words[0], words[1], words[2], words[3], number);
  }
  return found < 2 ? "" : out;
}

void take_steps(const scaler::LogAudit& audit, std::vector<LoggedStep>& out) {
  for (const scaler::Moment& m : audit.timeline.moments) {
    LoggedStep step{m.line, m.step, m.loss, m.norm ? m.norm : m.mean_norm, m.lr};
    if (step.loss || step.norm) out.push_back(step);
  }
}

/// log of C(2n, n).
double log_choices(std::size_t n) {
  const auto x = static_cast<double>(n);
  return std::lgamma(2 * x + 1) - 2 * std::lgamma(x + 1);
}

std::string step_text(const LoggedStep& s) {
  std::string out = s.place();
  if (s.loss) out += " loss " + shown(*s.loss);
  if (s.norm) out += ", grad_norm " + shown(*s.norm);
  if (s.lr) out += ", lr " + shown(*s.lr);
  return out;
}

template <class Get>
std::vector<double> finite_until(const std::vector<LoggedStep>& steps, std::size_t end, const Get& get,
                                 std::vector<std::ptrdiff_t>& at) {
  std::vector<double> out;
  for (std::size_t i = 0; i < end; ++i)
    if (good(get(steps[i]))) {
      out.push_back(*get(steps[i]));
      at.push_back(static_cast<std::ptrdiff_t>(i));
    }
  return out;
}

/// Numbers of the loss and norm around the first bad step.
class Diagnoser {
 public:
  explicit Diagnoser(LogDiagnosis& out) : out_(out), steps_(out.steps) {}

  void run() {
    for (const LoggedStep& s : steps_) {
      has_norm_ |= s.norm.has_value();
      has_lr_ |= s.lr.has_value();
    }
    if (!not_finite() && !no_gradient() && !frozen()) rises();
    if (out_.first_bad >= 0) {
      const auto end = static_cast<std::size_t>(out_.first_bad);
      constexpr std::size_t kShown = 4;
      for (std::size_t i = end > kShown ? end - kShown : 0; i < end; ++i) out_.before.push_back(steps_[i]);
      precursor(end);
      rate(end);
    }
    unknown();
    next();
  }

 private:
  const LoggedStep& at(std::ptrdiff_t i) const { return steps_[static_cast<std::size_t>(i)]; }

  void found(LogTrouble trouble, const char* kind, std::size_t i) {
    out_.trouble = trouble;
    out_.kind = kind;
    out_.first_bad = static_cast<std::ptrdiff_t>(i);
    out_.what = step_text(steps_[i]);
  }

  /// What the steps behind one say of it: the loss goes on, or is bad too (or zero, as a NaN is averaged away in
  /// print), or nothing.
  enum class Later { goes_on, bad, nothing };
  Later later(std::size_t from) const {
    Later out = Later::nothing;
    for (std::size_t i = from; i < steps_.size(); ++i) {
      const LoggedStep& s = steps_[i];
      if (good(s.loss) && *s.loss != 0 && !bad(s.norm)) return Later::goes_on;
      if (bad(s.loss) || bad(s.norm)) out = Later::bad;
    }
    return out;
  }

  bool not_finite() {
    std::size_t first = 0, single = steps_.size();
    for (; first < steps_.size(); ++first) {
      const LoggedStep& s = steps_[first];
      if (bad(s.loss)) break;
      if (!bad(s.norm)) continue;
      if (later(first + 1) != Later::goes_on || (s.loss && *s.loss == 0)) break;
      single = std::min(single, first);  // the loss goes on: nothing was updated by it
    }
    if (first == steps_.size()) {
      if (single == steps_.size()) return false;
      found(LogTrouble::skipped, "norm_not_finite_once", single);
      std::int64_t count = 0;
      for (const LoggedStep& s : steps_) count += bad(s.norm);
      out_.excluded.push_back(
          "poisoned weights: the loss behind it is finite, so this step's gradients were not applied");
      out_.left.push_back(fmt::format(
          "{} of {} lines with a gradient beyond the 16-bit range: usual with an fp16 loss scaler, not with "
          "bf16 or fp32",
          count, steps_.size()));
      return true;
    }
    const LoggedStep& s = steps_[first];
    if (good(s.loss) && *s.loss != 0 && later(first + 1) == Later::nothing) {
      found(LogTrouble::open, "norm_not_finite_at_the_end", first);
      out_.excluded.push_back("the forward of " + s.place() + ": its loss is finite");
      out_.left.push_back("a step that a loss scaler skips, which is harmless, or poisoned weights: the log ends here");
      return true;
    }
    const bool in_loss = bad(s.loss) || (s.loss && *s.loss == 0 && bad(s.norm));
    found(LogTrouble::not_finite, in_loss ? "loss_not_finite" : "norm_not_finite", first);
    for_good(first, in_loss);
    return true;
  }

  void for_good(std::size_t first, bool in_loss) {
    const LoggedStep& s = steps_[first];
    const bool before = first > 0, norm_before = before && good(steps_[first - 1].norm);
    if (!in_loss) {
      if (good(s.loss)) out_.excluded.push_back("the forward of " + s.place() + ": its loss is finite");
      if (!s.loss) out_.left.push_back("the forward of " + s.place() + ": the log says no loss there");
      out_.left.push_back("the backward of " + s.place() +
                          ": a gradient beyond the 16-bit range, a derivative of 0/0 or sqrt(0), a kernel's gradient");
    } else if (norm_before) {
      out_.excluded.push_back("the gradients of " + steps_[first - 1].place() + ": their norm is finite (" +
                              shown(*steps_[first - 1].norm) + ")");
      out_.left.push_back("the forward of " + s.place() +
                          ": an activation beyond the range (fp16: 65504), log or division of 0, a row that is masked "
                          "as a whole, this batch's data");
      out_.left.push_back("the update of " + steps_[first - 1].place() +
                          ": moments or eps that underflow, a decayed learning rate of the wrong sign or size");
    } else if (before && has_norm_) {
      out_.left.push_back("the gradients of " + steps_[first - 1].place() + ", whose norm the log does not say");
    } else if (before) {
      out_.left.push_back("the forward of " + s.place() + ", or gradients before it: the log says no gradient norm");
    } else {
      out_.left.push_back(
          "initial weights, the first batch, or a forward that is not finite at once: the first logged step is bad");
      out_.excluded.push_back("the training itself: nothing was learned yet");
    }
    const Later behind = later(first + 1);
    if (behind == Later::bad)
      out_.excluded.push_back("a skipped step: no later loss is finite, so the weights hold it");
    if (behind == Later::goes_on) out_.excluded.push_back("weights that hold it: a later loss is finite");
    if (s.loss && *s.loss == 0 && bad(s.norm))
      out_.what += " (a loss of exactly 0 beside such a norm is how a NaN is averaged away in print)";
  }

  bool no_gradient() {
    if (!has_norm_) return false;
    constexpr std::size_t kLeast = 3;
    std::size_t run = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      run = steps_[i].norm && *steps_[i].norm == 0 ? run + 1 : 0;
      if (run < kLeast) continue;
      found(LogTrouble::no_gradient, "no_gradient", i + 1 - kLeast);
      out_.left = {"gradients that underflow to zero in 16 bits (no loss scale, or one that fell)",
                   "a loss that is cut off from the weights (detach, no_grad, an argmax)",
                   "a norm that is taken after the gradients are zeroed"};
      return true;
    }
    return false;
  }

  bool frozen() {
    constexpr std::size_t kLeast = 8;
    std::size_t run = 1;
    for (std::size_t i = 1; i < steps_.size(); ++i) {
      run = good(steps_[i].loss) && steps_[i].loss == steps_[i - 1].loss ? run + 1 : 1;
      if (run < kLeast) continue;
      found(LogTrouble::frozen, "loss_frozen", i + 1 - kLeast);
      const bool zero_rate = steps_[i].lr && *steps_[i].lr == 0;
      if (zero_rate) out_.left.push_back("the learning rate is 0");
      out_.left.push_back(
          "no update is made: every step is skipped, the optimizer holds other tensors, or updates are "
          "lost in bf16 weights without an fp32 copy");
      out_.left.push_back("every step sees the same batch and the printed digits are too few");
      return true;
    }
    return false;
  }

  void rises() {
    std::vector<std::ptrdiff_t> where;
    const std::vector<double> losses = finite_until(
        steps_, steps_.size(), [](const LoggedStep& s) { return s.loss; }, where);
    const Rise rise = first_rise(losses);
    if (rise.at < 0) return;
    const double best = *std::min_element(losses.begin(), losses.begin() + rise.at);
    found(LogTrouble::rises, "loss_rises", static_cast<std::size_t>(where[static_cast<std::size_t>(rise.at)]));
    out_.what += fmt::format(
        ": the {} losses from here on all lie above the {} before (chance: 1 in {:.0f}), and none "
        "comes back to the best before ({})",
        rise.width, rise.width, rise.odds, shown(best));
    out_.left = {"learning rate, data or model: an fp64 or fp32 run from the same checkpoint would rise too",
                 "low precision: it would not"};
    out_.excluded.push_back("NaN and infinity: every logged number is finite");
  }

  void precursor(std::size_t end) {
    if (!has_norm_) return;
    std::vector<std::ptrdiff_t> where;
    const std::vector<double> norms = finite_until(
        steps_, end, [](const LoggedStep& s) { return s.norm; }, where);
    const Rise rise = first_rise(norms);
    if (rise.at < 0) {
      if (out_.trouble != LogTrouble::none && norms.size() > 8)
        out_.excluded.push_back("a slow growth of the gradient norm before it: it rises no more than chance explains");
      return;
    }
    out_.precursor = where[static_cast<std::size_t>(rise.at)];
    out_.precursor_text = fmt::format(
        "the gradient norm rises from {} on: {} values above the {} before them (chance: 1 "
        "in {:.0f}), {} logged steps ahead",
        at(out_.precursor).place(), rise.width, rise.width, rise.odds, out_.first_bad - out_.precursor);
  }

  void rate(std::size_t end) {
    if (!has_lr_ || end == 0 || !good(steps_[end].lr) || !good(steps_[end - 1].lr)) return;
    const double now = *steps_[end].lr, before = *steps_[end - 1].lr;
    double largest = 0;
    for (std::size_t i = 0; i <= end; ++i)
      if (good(steps_[i].lr)) largest = std::max(largest, *steps_[i].lr);
    if (now > 2 * before)
      out_.left.insert(out_.left.begin(),
                       fmt::format("the learning rate: it jumps from {} to {}", shown(before), shown(now)));
    else
      out_.excluded.push_back(
          fmt::format("a jump of the learning rate: {} before, {} here", shown(before), shown(now)));
    if (now == largest && now > before)
      out_.left.push_back("the end of a warm-up: the learning rate is the largest so far");
  }

  void unknown() {
    if (!has_norm_)
      out_.unknown.push_back("no gradient norm: forward and backward are not told apart; log it before clipping");
    if (!has_lr_) out_.unknown.push_back("no learning rate");
    if (!out_.scaler || !out_.scaler->timeline.scale_known)
      out_.unknown.push_back("no loss scale and no skipped steps: print scaler.get_scale() if there is a scaler");
    const bool each = out_.scaler && out_.scaler->timeline.each_step;
    if (!each && out_.trouble != LogTrouble::none)
      out_.unknown.push_back("steps between the logged lines: log each step around the first bad one");
  }

  void next() {
    if (out_.trouble == LogTrouble::none) return;
    if (out_.trouble == LogTrouble::skipped) {
      out_.next.push_back("ampcheck audit scaler --log FILE, once the log says the scale");
      return;
    }
    const std::string good_place = out_.first_bad > 0 ? at(out_.first_bad - 1).place() : "the start";
    out_.next.push_back(
        fmt::format("keep a checkpoint of {} (weights, optimizer, scaler, RNG) and the batch of {}; run "
                    "this one step twice: other bits point to a race or the hardware",
                    good_place, at(out_.first_bad).place()));
    if (out_.trouble == LogTrouble::rises || out_.trouble == LogTrouble::frozen)
      out_.next.push_back("run the same steps from there in fp32: if the loss does the same, it is not precision");
    else
      out_.next.push_back(
          "in that step record each module's inputs and outputs (Hugging Face: "
          "--debug underflow_overflow), then: ampcheck diagnose THAT_OUTPUT");
    out_.next.push_back(
        "save the first bad op's tensors as safetensors, inputs by the formula's names, outputs y, "
        "cotangents dy, gradients dx; then: ampcheck check --dump FILE --formula F");
  }

  LogDiagnosis& out_;
  const std::vector<LoggedStep>& steps_;
  bool has_norm_ = false, has_lr_ = false;
};

}  // namespace

std::string LoggedStep::place() const { return step ? fmt::format("step {}", *step) : fmt::format("line {}", line); }

const char* name(LogTrouble trouble) {
  switch (trouble) {
    case LogTrouble::none: return "NOTHING FOUND";
    case LogTrouble::not_finite: return "NOT FINITE";
    case LogTrouble::open: return "CANNOT TELL";
    case LogTrouble::skipped: return "SKIPPED STEPS";
    case LogTrouble::rises: return "RISES";
    case LogTrouble::frozen: return "FROZEN";
    case LogTrouble::no_gradient: return "NO GRADIENT";
  }
  return "";
}

bool LogDiagnosis::wrong() const {
  return trouble != LogTrouble::none && trouble != LogTrouble::skipped && trouble != LogTrouble::open;
}

Rise first_rise(const std::vector<double>& values) {
  constexpr double kLogs = 1000;  // one of so many healthy logs may seem to rise
  constexpr std::size_t kLeast = 5;
  Rise out;
  out.width = kLeast;
  const double places = std::max<double>(static_cast<double>(values.size()), 1);
  while (log_choices(out.width) < std::log(kLogs * places)) ++out.width;
  out.odds = std::exp(log_choices(out.width)) / places;
  // The least value from each place on: a rise that is made good again is none.
  std::vector<double> least(values.size() + 1, HUGE_VAL);
  for (std::size_t at = values.size(); at-- > 0;) least[at] = std::min(values[at], least[at + 1]);
  for (std::size_t at = out.width; at + out.width <= values.size(); ++at) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(at);
    if (least[at] <= *std::max_element(middle - static_cast<std::ptrdiff_t>(out.width), middle)) continue;
    out.at = static_cast<std::ptrdiff_t>(at);
    return out;
  }
  return out;
}

LogDiagnosis diagnose_log(std::string_view text, const scaler::ColumnNames& columns) {
  LogDiagnosis out;
  scaler::LogAudit audit = scaler::audit_log(text, "", columns);
  take_steps(audit, out.steps);
  const bool known = std::any_of(out.steps.begin(), out.steps.end(), [](const LoggedStep& s) { return s.loss; });
  if (known) {
    out.read = "lines of";
    for (const auto& [grammar, lines] : audit.log.by_grammar)
      out.read += fmt::format(
          " '{}'", grammar < 0 ? audit.log.columns : scaler::log_grammars()[static_cast<std::size_t>(grammar)].name);
    out.scaler = std::move(audit);
  } else if (const std::string table = as_table(text); table.empty()) {
    if (!audit.nothing_read()) out.scaler = std::move(audit);
  } else {
    // The reader's lines are those of the table: its last column holds where they stand in the log.
    std::vector<std::int64_t> at;
    for (std::size_t from = table.find('\n') + 1; from < table.size(); from = table.find('\n', from) + 1) {
      const std::size_t end = table.find('\n', from), comma = table.rfind(',', end);
      at.push_back(static_cast<std::int64_t>(number_in(table.substr(comma + 1, end - comma - 1)).value_or(0)));
    }
    scaler::LogAudit plain = scaler::audit_log(table, "");
    out.steps.clear();
    take_steps(plain, out.steps);
    for (LoggedStep& s : out.steps)
      if (s.line >= 2 && static_cast<std::size_t>(s.line - 2) < at.size())
        s.line = at[static_cast<std::size_t>(s.line - 2)];
    out.read = "numbers behind the words step, loss, grad_norm and lr";
    out.scaler = std::move(plain);
  }
  if (!out.steps.empty()) Diagnoser(out).run();
  return out;
}

}  // namespace ampcheck::checks::stacks
