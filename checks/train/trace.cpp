// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace.h"

#include <fcntl.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <type_traits>

#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck::checks::train {

namespace {

/// Text of a JSON string: names hold letters, digits, points and underscores, or come from a user's net.
struct Quoted {
  std::string_view text;
};

// Parts of a line, appended one by one: a step of a small net is some thousands of them.
void append(std::string& out, std::int64_t n) {
  const fmt::format_int digits(n);
  out.append(digits.data(), digits.size());
}
void append(std::string& out, bool yes) { out += yes ? "true" : "false"; }
/// "nan", "inf" and "-inf" are text; shortest digits that read back.
void append(std::string& out, double value) {
  if (std::isnan(value)) out += "\"nan\"";
  else if (std::isinf(value)) out += value < 0 ? "\"-inf\"" : "\"inf\"";
  else {
    char digits[32];  // shortest: 24 at most
    out.append(digits, static_cast<std::size_t>(fmt::format_to(digits, FMT_COMPILE("{}"), value) - digits));
  }
}
struct Maybe {
  bool known;
  double value;
};
void append(std::string& out, Maybe maybe) {
  if (maybe.known) append(out, maybe.value);
  else out += "null";
}
void append(std::string& out, const std::optional<double>& value) { append(out, Maybe{value.has_value(), value.value_or(0)}); }
void append(std::string& out, Quoted quoted) {
  out += '"';
  if (std::none_of(quoted.text.begin(), quoted.text.end(), [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; })) {
    out.append(quoted.text), out += '"';
    return;
  }
  for (const char c : quoted.text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  }
  out += '"';
}
void append(std::string& out, const char* text) { out += text; }
void append(std::string& out, int n) { append(out, static_cast<std::int64_t>(n)); }

template <class... Parts>
void put(std::string& out, const Parts&... parts) {
  const auto add = [&]<class Part>(const Part& part) {
    if constexpr (std::is_array_v<Part>) out.append(part, sizeof part - 1);  // text as it stands in the source
    else append(out, part);
  };
  (add(parts), ...);
}

/// The statistics of one tensor by itself. The lowest exponent holds all subnormal numbers.
void put_statistics(std::string& out, const TensorStats& stats) {
  const FloatFormat& f = format(stats.dtype);
  put(out, "\"elements\":", stats.count, ",\"zero\":", stats.zeros, ",\"subnormal\":", stats.subnormals, ",\"inf\":", stats.infinities(), ",\"nan\":", stats.nans, ",\"amax\":", stats.amax_finite(),
      ",\"amin\":", stats.amin(), ",\"exponents\":[");
  const auto count = [&](int field) { return field == 0 ? stats.subnormals : stats.exponents[static_cast<std::size_t>(field)]; };
  int first = 0, end = f.max_exponent() + f.bias + 1;  // exponent fields
  while (first < end && count(first) == 0) ++first;
  while (end > first && count(end - 1) == 0) --end;
  put(out, first == end ? 0 : first == 0 ? f.min_exponent() - 1 : first - f.bias, ",[");
  for (int field = first; field < end; ++field) put(out, field > first ? "," : "", count(field));
  out += "]]";
}

/// Against the local shadow, in ulps of the tensor's format.
void put_shadow(std::string& out, const TensorView& got, const TensorView& exact, const ShadowStats* known) {
  if (exact.data == nullptr || exact.count() == 0) return put(out, "\"subnormal_loss\":0,\"saturated\":0,\"bias\":null,\"bias_z\":null,\"ulps\":[]");
  const ShadowStats s = known != nullptr ? *known : shadow_stats(got, exact);
  put(out, "\"subnormal_loss\":", s.subnormal_loss, ",\"saturated\":", s.saturated, ",\"bias\":", s.bias(), ",\"bias_z\":", s.bias_z(), ",\"ulps\":[", s.exact);
  std::size_t last = 0;
  for (std::size_t i = 0; i < s.ulps.size(); ++i)
    if (s.ulps[i] > 0) last = i + 1;
  for (std::size_t i = 0; i < last; ++i) put(out, ",", s.ulps[i]);
  out += "]";
}

/// Exact values of a gradient: smallest and largest magnitude, and how many have which exponent; exact powers of two if there are any.
void put_range(std::string& out, const GradientRange& range) {
  if (range.nonzero() == 0) return;
  const int first = range.first_exponent(), last = range.last_exponent();
  put(out, ",\"range\":[", range.amin(), ",", range.amax(), ",", first);
  bool powers = false;
  for (int e = first; e <= last; ++e) put(out, e > first ? "," : ",[", range.with_exponent(e)), powers |= range.powers_with_exponent(e) > 0;
  for (int e = first; powers && e <= last; ++e) put(out, e > first ? "," : "],[", range.powers_with_exponent(e));
  out += "]]";
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw WriteError("[trace] " + path + ", got " + std::strerror(errno) + " when " + what + ", want a file that can be written");
}

/// Cuts a trace off before step `next`, or after its last whole step, and a torn last line with it. What was run, as it stands in what is
/// left: the first line, or that of a later part of the run; none: there is no trace.
std::optional<std::string> cut_after_step(const std::string& path, int next) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return std::nullopt;
  const std::string text = read_bytes(path, "trace");
  std::size_t keep = text.find('\n') + 1, begin = 0;
  std::string head = text.substr(0, keep), last_head = head;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    int step = -1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    constexpr std::string_view kStart = "{\"step\":";
    if (line.starts_with("{\"schema\":")) last_head = std::string(line) + '\n';
    if (!line.starts_with(kStart)) continue;
    std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
    if (step >= next) break;
    if (line.find("\"loss\":") != std::string_view::npos && line.find("\"seq\":") == std::string_view::npos) keep = end + 1, head = last_head;
  }
  std::filesystem::resize_file(path, keep);
  return keep > 0 ? std::optional(head) : std::nullopt;
}

/// How the first line of a trace begins: what is the same however long a run is.
std::string head_of(const Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  std::string out;
  put(out, "{\"schema\":\"ampcheck.trace/1\",\"model\":", Quoted{trainer.net().name}, ",\"dtype\":\"", name(o.dtype), "\",\"autocast\":\"", trainer.autocast_list(), "\",\"autocast_tables\":\"", kAutocastTablesVersion, "\",\"scaler\":\"", scaler_name(o), "\",\"seed\":", static_cast<std::int64_t>(o.seed));
  return out;
}

std::string first_line(const Trainer& trainer, int steps) {
  const TrainOptions& o = trainer.options();
  std::string out = head_of(trainer);
  put(out, ",\"steps\":", steps, ",\"local\":", o.shadows.local, ",\"carried\":", o.shadows.carried, "}\n");
  return out;
}

}  // namespace

void require_trace_of(const std::string& path, const Trainer& trainer) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return;
  const std::string head = head_of(trainer) + ",";
  std::string start(head.size(), '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  if (start != head) throw Error("[trace] got '" + path + "', which is no trace of this run, want its trace or a new file");
}

TraceWriter::TraceWriter(const std::string& path, const Trainer& trainer, int steps, bool resumed) : path_(path) {
  if (trainer.options().gradient_errors > 0) seqs_.emplace();
  const std::optional<std::string> written = resumed ? cut_after_step(path, trainer.steps()) : std::nullopt;
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (written ? 0 : O_TRUNC), 0644);
  if (file_ < 0) fail(path_, "opening it");
  std::string head = first_line(trainer, steps);
  if (written != head) pending_ = std::move(head);  // a run that goes on for longer than was meant says so where it does
}

TraceWriter::TraceWriter(const Trainer& trainer, int steps) : pending_(first_line(trainer, steps)), held_(true) {
  if (trainer.options().gradient_errors > 0) seqs_.emplace();
}

TraceWriter::~TraceWriter() {
  if (file_ >= 0) ::close(file_);
}

void TraceWriter::tensor(const Event& e, const TensorKey& key, const Tally& t, FaultRole role, const TensorStats& stats) {
  const bool shadowed = t.error2 > 0 || t.exact2 > 0 || t.nonzero > 0;
  const Maybe local{shadowed, t.local_error()}, carried{t.carried2 > 0 || t.carried_error2 > 0, t.carried_error()};
  std::string& out = pending_;
  if (seqs_) seqs_->try_emplace(key, seq_);
  put(out, "{\"step\":", e.step, ",\"seq\":", seq_++, ",\"phase\":\"", train::name(e.phase), "\",\"cast\":", e.cast, ",\"op\":", Quoted{key.op}, ",\"layer\":", Quoted{key.layer}, ",\"tensor\":",
      Quoted{key.tensor}, ",\"dtype\":\"", ampcheck::name(key.dtype), "\",\"from\":\"", e.cast ? ampcheck::name(e.from) : "", "\",\"source\":", e.source, ",\"scale\":", e.scale, ",");
  put_statistics(out, stats);
  put(out, ",\"nonzero\":", t.nonzero, ",\"flushed\":", t.flushed, ",\"overflowed\":", t.overflowed, ",\"local_error\":", local, ",");
  put_shadow(out, e.got, e.exact, e.shadow);
  put(out, ",\"carried_error\":", carried);
  const Sizes sizes = t.sizes();
  if (sizes.exact) put(out, ",\"exact_rms\":", *sizes.exact);
  if (sizes.fp64) put(out, ",\"fp64_rms\":", *sizes.fp64);
  if (e.range != nullptr) put_range(out, *e.range);
  if (e.by_gradient) put(out, ",\"by_gradient\":true");
  if (e.rank > 0) put(out, ",\"rank\":", e.rank);
  if (e.cancelled >= 0) put(out, ",\"cancelled\":[", e.cancelled, ",", e.most_cancelled, "]");
  if (t.loss_reach > 0) put(out, ",\"loss_error\":", t.loss_error, ",\"loss_reach\":", t.loss_reach);
  if (t.norm_error2 > 0) put(out, ",\"norm_error\":", t.norm_error);
  if (t.decisions > 0) put(out, ",\"decisions\":[", t.decisions, ",", t.flipped, ",", t.undecided, ",", t.least_margin, ",", t.margins, ",", t.radii, "]");
  if (e.copy_stagnant > 0) put(out, ",\"copy_stagnant\":", e.copy_stagnant);
  if (e.second_moment_zero > 0) put(out, ",\"second_moment_zero\":", e.second_moment_zero);
  if (e.epsilon_zero > 0) put(out, ",\"epsilon_zero\":", e.epsilon_zero);
  put(out, ",\"intended\":", t.intended, ",\"stagnant\":", t.stagnant, ",\"role\":\"", train::name(role), "\"}\n");
}

void TraceWriter::moved_late(const LateMove& m) {
  put(pending_, "{\"step\":", m.step, ",\"moved_late\":\"", m.what, "\",\"after\":", Quoted{m.after}, ",\"launched\":", m.launched, ",\"bytes\":", m.bytes, "}\n");
}

void TraceWriter::gradient(const StepResult& s, const GradientError& e) {
  std::string& out = pending_;
  put(out, "{\"step\":", s.step, ",\"parameter\":", Quoted{e.parameter}, ",\"error\":", e.error, ",\"size\":", e.size, ",\"apart\":", e.apart, ",\"parts\":[");
  const char* separator = "";
  for (const GradientPart& part : e.parts) {
    const auto seq = seqs_->find(part.from);
    if (seq == seqs_->end()) continue;
    put(out, separator, "[", seq->second, ",", part.moves, ",", part.rounding, "]");
    separator = ",";
  }
  out += "]}\n";
}

void TraceWriter::step(const StepResult& s) {
  if (seqs_)
    for (const GradientError& e : s.gradient_errors) gradient(s, e);
  if (seqs_) seqs_->clear();
  put(pending_, "{\"step\":", s.step, ",\"loss\":", s.loss, ",\"fp64_loss\":", s.fp64_loss, ",\"spread\":", s.spread, ",\"apart\":", s.apart, ",\"rounding\":", s.rounding, ",\"scale\":", s.scale, ",\"scale_after\":", s.scale_after, ",\"tracker\":", s.tracker, ",\"found_inf\":", s.found_inf,
      ",\"stepped\":", s.stepped, ",\"stagnant_share\":", s.stagnant_share, ",\"loss_drift\":", s.loss_drift, "}\n");
  seq_ = 0;
  if (!held_) write();
}

void TraceWriter::release(bool written) {
  held_ = false;
  if (written) write();
  pending_.clear();
}

void TraceWriter::write() {
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "writing");
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  pending_.clear();
}

}  // namespace ampcheck::checks::train
