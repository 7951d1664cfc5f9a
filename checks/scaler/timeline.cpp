// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/timeline.h"

#include <algorithm>
#include <cmath>

namespace ampcheck::checks::scaler {

namespace {

using enum Quantity;

/// Which of several sources of one fact a log has.
struct Sources {
  bool lines = false, flags = false, here = false, total = false, large_flag = false;

  SkipSource best() const {
    return lines                    ? SkipSource::lines
           : flags && !large_flag   ? SkipSource::flags
           : here || total || flags ? SkipSource::counters
                                    : SkipSource::falls;
  }
};

Sources sources_of(const Log& log) {
  Sources out;
  for (const Reading& r : log.readings) {
    out.lines |= r.event == Event::skip;
    out.flags |= r.has(skipped) || r.has(stepped);
    out.here |= r.has(skipped_here);
    out.total |= r.has(skipped_total);
    out.large_flag |= log.get(r, skipped).value_or(0) > 1;
  }
  return out;
}

/// The rank whose lines are followed: the lowest that says something of the scale. -1: lines have no rank.
int main_rank(const Log& log) {
  int out = -1;
  for (const Reading& r : log.readings) {
    if (!r.has(rank) || !(r.has(scale) || r.has(attempted) || r.has(reduced) || r.event == Event::skip)) continue;
    const auto number = static_cast<int>(*log.get(r, rank));
    if (out < 0 || number < out) out = number;
  }
  return out;
}

class Builder {
 public:
  Builder(const Log& log, const ScaleRule& rule) : log_(log), rule_(rule), sources_(sources_of(log)) {}

  Timeline build() {
    out_.source = sources_.best();
    const int followed = main_rank(log_);
    for (const Reading& r : log_.readings) {
      const int of = static_cast<int>(log_.get(r, rank).value_or(-1));
      note_rank(r, of);
      if (log_.get(r, scaler).value_or(0) != 0) continue;  // the first of several scalers
      if (of < 0 || followed < 0 || of == followed) take(r);
    }
    drop_copies();
    bound_steps();
    summarise();
    find_streaks();
    return std::move(out_);
  }

 private:
  void note_rank(const Reading& r, int of) {
    const auto said = r.has(scale)     ? log_.get(r, scale)
                      : r.has(reduced) ? log_.get(r, reduced)
                                       : log_.get(r, attempted);
    if (of >= 0 && said)
      out_.by_rank[of].emplace_back(static_cast<std::int64_t>(log_.get(r, step).value_or(-1)), *said);
  }

  void take(const Reading& r) {
    if (r.event == Event::moved && join_move(r)) return;
    Moment m;
    m.line = r.line;
    m.event = r.event;
    if (const auto said = log_.get(r, step)) m.step = static_cast<std::int64_t>(*said);
    m.loss = log_.get(r, loss);
    m.norm = log_.get(r, norm);
    m.mean_norm = log_.get(r, mean_norm);
    m.lr = log_.get(r, lr);
    m.samples = log_.get(r, samples);
    m.clean = log_.get(r, clean_count);
    if (r.has(skipped_total)) out_.counted_skips = static_cast<std::int64_t>(*log_.get(r, skipped_total));
    m.averages = r.grammar >= 0 && log_grammars()[static_cast<std::size_t>(r.grammar)].averages;
    if (r.event == Event::none) m.counted = counted(r);
    out_.at_floor |= r.event == Event::at_floor;
    scales(r, m);
    m.skips = skips_of(r, m);
    if (m.skip() && !m.before && m.after) m.before = *m.after / rule_.backoff_factor;  // the log's first line
    m.peak = peak_of(m);
    if (m.after) scale_ = m.after;
    if (r.event == Event::checkpoint) out_.checkpoints.push_back(out_.moments.size());
    out_.moments.push_back(m);
  }

  std::optional<double> peak_of(const Moment& m) const {
    if (out_.source != SkipSource::counters || !m.before || !m.after || !(*m.after > rule_.floor)) return std::nullopt;
    const double fallen = std::log2(*m.before / *m.after);
    const double hidden = static_cast<double>(m.skips - (rule_.hysteresis - 1)) - fallen;
    return hidden >= 1 ? std::optional(*m.before * std::exp2(hidden)) : std::nullopt;
  }

  /// "Reducing dynamic loss scale from A to B" belongs to the overflow before it.
  bool join_move(const Reading& r) {
    const double from = *log_.get(r, attempted), to = *log_.get(r, reduced);
    if (to >= from || out_.moments.empty() || !out_.moments.back().skip()) return false;
    out_.moments.back().before = from;
    out_.moments.back().after = to;
    scale_ = to;
    return true;
  }

  std::optional<double> counted(const Reading& r) const {
    if (!r.has(skipped_here) && !r.has(nan_here) && !r.has(skipped_total)) return std::nullopt;
    return log_.get(r, skipped_here).value_or(0) + log_.get(r, nan_here).value_or(0) +
           log_.get(r, skipped_total).value_or(0);
  }

  void scales(const Reading& r, Moment& m) const {
    m.before = log_.get(r, attempted);
    m.after = r.has(reduced) ? log_.get(r, reduced) : log_.get(r, scale);
    if (r.event == Event::skip && m.before && !m.after) m.after = m.before;  // hysteresis
    if (r.event == Event::skip && !m.before && m.after && r.has(reduced)) m.before = *m.after / rule_.backoff_factor;
    if (!m.before) m.before = scale_;
  }

  std::int64_t skips_of(const Reading& r, const Moment& m) {
    switch (out_.source) {
      case SkipSource::lines: return r.event == Event::skip ? 1 : 0;
      case SkipSource::flags:
        if (r.has(skipped)) return log_.get(r, skipped) != 0.0 ? 1 : 0;
        return r.has(stepped) && log_.get(r, stepped) == 0.0 ? 1 : 0;
      case SkipSource::counters: return by_counter(r);
      case SkipSource::falls:
        if (!m.before || !m.after || !(*m.after < *m.before)) return 0;
        if (!(*m.after > 0)) return 1;  // printed in too few decimals
        return std::max<std::int64_t>(1, std::llround(std::log(*m.after / *m.before) / std::log(rule_.backoff_factor)));
      case SkipSource::none: break;
    }
    return 0;
  }

  std::int64_t by_counter(const Reading& r) {
    if (r.has(skipped_here)) return static_cast<std::int64_t>(*log_.get(r, skipped_here));
    const auto total = r.has(skipped_total) ? log_.get(r, skipped_total) : log_.get(r, skipped);
    if (!total) return 0;
    const auto now = static_cast<std::int64_t>(*total);
    if (!total_) out_.earlier_skips = now;
    const std::int64_t since = now - total_.value_or(now);
    total_ = now;
    return std::max<std::int64_t>(since, 0);
  }

  /// Ranks without names say each overflow once each: "32768 32768 16384 16384".
  void drop_copies() {
    std::vector<std::size_t> events;
    for (std::size_t i = 0; i < out_.moments.size(); ++i)
      if (out_.moments[i].event == Event::skip && !out_.moments[i].step && out_.moments[i].after) events.push_back(i);
    std::vector<std::size_t> runs;
    for (std::size_t i = 0; i < events.size(); ++i) {
      const bool same = i > 0 && out_.moments[events[i]].after == out_.moments[events[i - 1]].after;
      if (same)
        ++runs.back();
      else
        runs.push_back(1);
    }
    if (runs.size() < 3) return;
    const std::size_t copies = *std::ranges::min_element(runs);
    if (copies < 2 || std::ranges::any_of(runs, [&](std::size_t n) { return n % copies != 0; })) return;
    out_.copies = static_cast<int>(copies);
    std::vector<bool> gone(out_.moments.size());
    for (std::size_t i = 0; i < events.size(); ++i) gone[events[i]] = i % copies != 0;
    std::vector<Moment> kept;
    for (std::size_t i = 0; i < out_.moments.size(); ++i)
      if (!gone[i]) kept.push_back(out_.moments[i]);
    out_.moments = std::move(kept);
  }

  /// Steps of lines that do not say theirs: exact where the lines around leave no choice.
  void bound_steps() {
    std::vector<Moment>& all = out_.moments;
    std::int64_t low = -1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].step) {
        if (low >= 0 && *all[i].step < low) out_.restarts.push_back(i);
        if (low >= 0) all[i].interval = std::max<std::int64_t>(*all[i].step - low, 1);
        low = *all[i].step;
      } else {
        all[i].low = low;
      }
    }
    std::int64_t high = -1;
    for (std::size_t i = all.size(); i-- > 0;) {
      if (all[i].step)
        high = *all[i].step;
      else
        all[i].high = high;
    }
    for (std::size_t i = 0; i < all.size();) {
      std::size_t end = i;
      std::int64_t skips = 0;
      for (; end < all.size() && !all[end].step; ++end) skips += all[end].skip() ? 1 : 0;
      if (end > i && end < all.size() && skips > 0 && all[i].high - std::max<std::int64_t>(all[i].low, 0) == skips)
        for (std::int64_t at = std::max<std::int64_t>(all[i].low, 0); i < end; ++i)
          if (all[i].skip()) all[i].step = ++at;
      i = end + 1;
    }
  }

  void summarise() {
    std::optional<std::int64_t> first, last;
    std::int64_t steps_said = 0, gaps = 0;
    for (const Moment& m : out_.moments) {
      if (m.step) {
        if (last && *m.step > *last + 1) ++gaps;
        if (!last || *m.step > *last) ++steps_said;
        first = std::min(first.value_or(*m.step), *m.step);
        last = std::max(last.value_or(*m.step), *m.step);
      }
      if (m.after) {
        if (!out_.first_scale) out_.first_scale = m.peak ? m.peak : m.before ? m.before : m.after;
        out_.last_scale = m.after;
      }
      out_.norm_known |= m.norm.has_value() || m.mean_norm.has_value();
      out_.loss_known |= m.loss.has_value();
      out_.skips += m.skips;
    }
    out_.scale_known = out_.last_scale.has_value();
    out_.step_known = first.has_value();
    if (!first) return;
    out_.first_step = *first;
    out_.last_step = *last;
    out_.steps = *last - (*first <= 1 ? 0 : *first - 1);
    if (*first == 0) ++out_.steps;
    out_.each_step = gaps == 0 && steps_said > 1;
  }

  /// Whether no clean step is known to lie between two skips.
  static bool follows(const Moment& a, const Moment& b, bool clean_between) {
    if (a.step && b.step) return a.all_skipped() && *b.step >= *a.step && *b.step - b.skips <= *a.step;
    if (clean_between) return false;
    return !a.after || !b.before || *a.after == *b.before;
  }

  void find_streaks() {
    const std::vector<Moment>& all = out_.moments;
    bool clean = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Moment& m = all[i];
      if (!m.skip()) {
        if (m.event != Event::none || !is_behind(m)) continue;
        clean = true;
        if (!out_.streaks.empty()) out_.streaks.back().ended = true;
        continue;
      }
      const bool joins = !out_.streaks.empty() && follows(all[out_.streaks.back().last], m, clean);
      if (!joins) begin_streak(i);
      Streak& streak = out_.streaks.back();
      streak.last = i;
      streak.skips += m.skips;
      if (m.after) streak.after = *m.after;
      streak.ended = !m.all_skipped();
      clean = streak.ended;
    }
    end_by_other_lines();
  }

  /// A log of overflows alone, among lines that no grammar knows: more of those than the last streak took, and the run
  /// went on.
  void end_by_other_lines() {
    if (out_.streaks.empty() || out_.at_floor || out_.step_known) return;
    Streak& last = out_.streaks.back();
    const std::int64_t end = out_.moments[last.last].line, begin = out_.moments[last.first].line;
    if (log_.lines - end > end - begin + 1) last.ended = true;
  }

  /// Whether this moment is of a step behind the last skip, and not of the skipped one itself.
  bool is_behind(const Moment& m) const {
    if (out_.streaks.empty()) return m.step || m.loss || m.after;
    const Moment& last = out_.moments[out_.streaks.back().last];
    if (m.step && last.step) return *m.step > *last.step;
    return m.step || m.loss || m.after;
  }

  void begin_streak(std::size_t i) {
    const Moment& m = out_.moments[i];
    Streak next;
    next.first = i;
    next.scaled = m.before && m.after;
    next.before = m.peak ? *m.peak : m.before.value_or(0);
    if (!out_.streaks.empty()) {
      Streak& last = out_.streaks.back();
      last.ended = true;
      if (last.scaled && next.scaled && last.after > 0 && next.before > last.after)
        next.grown = std::log2(next.before / last.after);
    }
    out_.streaks.push_back(next);
  }

  const Log& log_;
  const ScaleRule& rule_;
  Sources sources_;
  Timeline out_;
  std::optional<double> scale_;
  std::optional<std::int64_t> total_;
};

}  // namespace

double Streak::halvings() const { return scaled && after > 0 && before > after ? std::log2(before / after) : 0; }

Timeline timeline_of(const Log& log, const ScaleRule& rule) { return Builder(log, rule).build(); }

}  // namespace ampcheck::checks::scaler
