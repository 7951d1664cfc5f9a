// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace.h"

#include <fcntl.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <type_traits>

#include "checks/train/trace_record.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/file_lock.h"

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
  if (std::isnan(value))
    out += "\"nan\"";
  else if (std::isinf(value))
    out += value < 0 ? "\"-inf\"" : "\"inf\"";
  else {
    char digits[32];  // shortest: 24 at most
    out.append(digits, static_cast<std::size_t>(fmt::format_to(digits, FMT_COMPILE("{}"), value) - digits));
  }
}
void append(std::string& out, const std::optional<double>& value) {
  if (value)
    append(out, *value);
  else
    out += "null";
}
void append(std::string& out, Quoted quoted) {
  out += '"';
  if (std::none_of(quoted.text.begin(), quoted.text.end(),
                   [](char c) { return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20; })) {
    out.append(quoted.text);
    out += '"';
    return;
  }
  for (const char c : quoted.text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  out += '"';
}
void append(std::string& out, const char* text) { out += text; }
void append(std::string& out, int n) { append(out, static_cast<std::int64_t>(n)); }

template <class... Parts>
void put(std::string& out, const Parts&... parts) {
  const auto add = [&]<class Part>(const Part& part) {
    if constexpr (std::is_array_v<Part>)
      out.append(part, sizeof part - 1);  // text as it stands in the source
    else
      append(out, part);
  };
  (add(parts), ...);
}

/// The statistics of one tensor by itself. The lowest exponent holds all subnormal numbers.
void take_statistics(TraceRecord& r, const TensorStats& stats) {
  const FloatFormat& f = format(stats.dtype);
  r.elements = stats.count;
  r.zero = stats.zeros;
  r.subnormal = stats.subnormals;
  r.inf = stats.infinities();
  r.nan = stats.nans;
  r.amax = stats.amax_finite();
  r.amin = stats.amin();
  const auto count = [&](int field) {
    return field == 0 ? stats.subnormals : stats.exponents[static_cast<std::size_t>(field)];
  };
  int first = 0, end = f.max_exponent() + f.bias + 1;  // exponent fields
  while (first < end && count(first) == 0) ++first;
  while (end > first && count(end - 1) == 0) --end;
  r.exponents.first = first == 0 ? f.min_exponent() - 1 : first - f.bias;
  for (int field = first; field < end; ++field) r.exponents.counts.push_back(count(field));
}

/// Against the local shadow, in ulps of the tensor's format.
void take_shadow(TraceRecord& r, const TensorView& got, const TensorView& exact, const ShadowStats* known) {
  if (exact.data == nullptr || exact.count() == 0) return;
  const ShadowStats s = known != nullptr ? *known : shadow_stats(got, exact);
  r.subnormal_loss = s.subnormal_loss;
  r.saturated = s.saturated;
  r.bias = s.bias();
  r.bias_z = s.bias_z();
  std::size_t last = 0;
  for (std::size_t i = 0; i < s.ulps.size(); ++i)
    if (s.ulps[i] > 0) last = i + 1;
  r.ulps.push_back(s.exact);
  r.ulps.insert(r.ulps.end(), s.ulps.begin(), s.ulps.begin() + static_cast<std::ptrdiff_t>(last));
}

/// Exact values of a gradient: smallest and largest magnitude, and how many have which exponent; exact powers of two if
/// there are any.
void take_range(TraceRecord& r, const GradientRange& range) {
  if (range.nonzero() == 0) return;
  const int first = range.first_exponent(), last = range.last_exponent();
  r.range_least = range.amin();
  r.range_most = range.amax();
  r.range_exponents.first = first;
  bool powers = false;
  for (int e = first; e <= last; ++e) {
    r.range_exponents.counts.push_back(range.with_exponent(e));
    powers |= range.powers_with_exponent(e) > 0;
  }
  for (int e = first; powers && e <= last; ++e) r.range_powers.push_back(range.powers_with_exponent(e));
}

/// What the watch made of it.
void take_tally(TraceRecord& r, const Tally& t) {
  r.nonzero = t.nonzero;
  r.flushed = t.flushed;
  r.overflowed = t.overflowed;
  r.intended = t.intended;
  r.stagnant = t.stagnant;
  if (t.error2 > 0 || t.exact2 > 0 || t.nonzero > 0) r.local_error = t.local_error();
  if (t.carried2 > 0 || t.carried_error2 > 0) r.carried_error = t.carried_error();
  const Sizes sizes = t.sizes();
  r.exact_rms = sizes.exact;
  r.fp64_rms = sizes.fp64;
  if (t.loss_reach > 0) {
    r.loss_error = t.loss_error;
    r.loss_reach = t.loss_reach;
  }
  if (t.norm_error2 > 0) r.norm_error = t.norm_error;
  if (t.decisions > 0) {
    r.decisions = t.decisions;
    r.flipped = t.flipped;
    r.undecided = t.undecided;
    r.least_margin = t.least_margin;
    r.margins = t.margins;
    r.radii = t.radii;
  }
}

void append_hex(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    out += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    out += "0123456789abcdef"[c & 15];
  }
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw WriteError("[trace] " + path + ", got " + std::strerror(errno) + " when " + what +
                   ", want a file that can be written");
}

/// What of a trace is whole and of earlier steps.
struct Kept {
  std::string head;  ///< what was run, as it stands there: the first line, or that of a later part of the run
  std::int64_t statistics = 0;  ///< bytes of the other file that it names
};

/// Where the record ends that a line of a tensor names; 0: none.
std::int64_t record_end(std::string_view line) {
  constexpr std::string_view kAt = ",\"at\":[";
  const std::size_t at = line.rfind(kAt);  // the last field: no name stands behind it
  if (at == std::string_view::npos) return 0;
  std::int64_t offset = 0, length = 0;
  const char* const end = line.data() + line.size();
  const auto [comma, none] = std::from_chars(line.data() + at + kAt.size(), end, offset);
  if (comma != end) std::from_chars(comma + 1, end, length);
  return offset + length;
}

/// Cuts a trace off before step `next`, or after its last whole step, and a torn last line with it; none: there is no
/// trace.
std::optional<Kept> cut_after_step(const std::string& path, int next) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return std::nullopt;
  const std::string text = read_bytes(path, "trace");
  std::size_t keep = text.find('\n') + 1, begin = 0;
  Kept kept{.head = text.substr(0, keep)};
  std::string last_head = kept.head;
  std::int64_t named = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    int step = -1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    constexpr std::string_view kStart = "{\"step\":";
    if (line.starts_with("{\"schema\":")) last_head = std::string(line) + '\n';
    if (!line.starts_with(kStart)) continue;
    std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
    if (step >= next) break;
    const bool tensor = line.find("\"seq\":") != std::string_view::npos;
    if (tensor) named = std::max(named, record_end(line));
    if (!tensor && line.find("\"loss\":") != std::string_view::npos) {
      keep = end + 1;
      kept = {last_head, named};
    }
  }
  std::filesystem::resize_file(path, keep);
  return keep > 0 ? std::optional(kept) : std::nullopt;
}

int open_to_append(const std::string& path, bool goes_on) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0644);
  if (file < 0) fail(path, "opening it");
  if (!lock_file(file)) {
    ::close(file);
    throw WriteError("[trace] got '" + path + "', which another run is writing, want a file of its own for each run");
  }
  if (!goes_on && ::ftruncate(file, 0) != 0 && errno != EINVAL) fail(path, "emptying it");  // EINVAL: a pipe
  return file;
}

void write_all(int file, const std::string& path, std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t written = ::write(file, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "writing");
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

constexpr std::string_view kSchema = R"({"schema":"ampcheck.trace/2")",
                           kEarlierSchema = R"({"schema":"ampcheck.trace/1")";

/// How the first line of a trace begins: what is the same however long a run is.
std::string head_of(const Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  std::string out(kSchema);
  put(out, ",\"model\":", Quoted{trainer.net().name}, ",\"dtype\":\"", name(o.dtype), "\",\"autocast\":\"",
      trainer.autocast_list(), "\",\"autocast_tables\":\"", kAutocastTablesVersion, "\",\"scaler\":\"", scaler_name(o),
      "\",\"seed\":", static_cast<std::int64_t>(o.seed));
  if (o.fp8) put(out, ",\"fp8\":", Quoted{o.fp8->str()});
  const char* separator = ",\"losses\":[";
  for (const std::string& loss : trainer.net().losses) {
    put(out, separator, Quoted{loss});
    separator = ",";
  }
  if (!trainer.net().losses.empty()) out += "]";
  separator = ",\"optimizers\":[";
  for (std::size_t k = 0; o.rule.optimizers() > 1 && k < o.rule.optimizers(); ++k) {
    put(out, separator, Quoted{optimizer_text(o.rule, k)});
    separator = ",";
  }
  if (o.rule.optimizers() > 1) out += "]";
  return out;
}

/// `net_file`: where the net is described; empty for one that comes with the program, or that a caller made.
std::string first_line(const Trainer& trainer, int steps, const std::string& net_file) {
  const TrainOptions& o = trainer.options();
  std::string out = head_of(trainer);
  put(out, ",\"steps\":", steps, ",\"local\":", o.shadows.local, ",\"carried\":", o.shadows.carried);
  if (!net_file.empty() || !o.own_net)
    put(out, ",\"net\":", Quoted{net_file.empty() ? o.net.model : net_file}, ",\"batch\":", o.net.batch,
        ",\"width\":", o.net.width, ",\"loss_kind\":", Quoted{o.net.loss});
  put(out, "}\n");
  return out;
}

}  // namespace

void require_trace_of(const std::string& path, const Trainer& trainer) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return;
  const std::string head = head_of(trainer) + ",";
  std::string start(head.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) throw EnvironmentError("[trace] cannot open '" + path + "': " + std::strerror(errno));
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  static_assert(kSchema.size() == kEarlierSchema.size());
  if (start.starts_with(kEarlierSchema)) start.replace(0, kSchema.size(), kSchema);
  if (start != head)
    throw Error("[trace] got '" + path + "', which is no trace of this run, want its trace or a new file");
}

TraceWriter::TraceWriter(const std::string& path, const Trainer& trainer, int steps, bool resumed,
                         const std::string& net_file)
    : path_(path), inline_(statistics_inline(path)) {
  if (trainer.options().gradient_errors > 0) seqs_.emplace();
  const std::optional<Kept> written = resumed ? cut_after_step(path, trainer.steps()) : std::nullopt;
  file_ = open_to_append(path, written.has_value());
  if (!inline_) {
    const std::string beside = statistics_path(path);
    statistics_ = open_to_append(beside, written.has_value());
    struct stat facts {};
    if (::fstat(statistics_, &facts) != 0) fail(beside, "opening it");
    // What no line names is cut off. Where lines name more than there is, it stays missing: their bytes are not given
    // to others.
    offset_ = written ? written->statistics : 0;
    if (facts.st_size != offset_ && ::ftruncate(statistics_, offset_) != 0) fail(beside, "cutting it off");
  }
  std::string head = first_line(trainer, steps, net_file);
  if (!written || written->head != head)
    pending_ = std::move(head);  // a run that goes on for longer than was meant says so where it does
}

TraceWriter::TraceWriter(const Trainer& trainer, int steps)
    : pending_(first_line(trainer, steps, "")), inline_(true), held_(true) {
  if (trainer.options().gradient_errors > 0) seqs_.emplace();
}

TraceWriter::~TraceWriter() {
  if (file_ >= 0) ::close(file_);
  if (statistics_ >= 0) ::close(statistics_);
}

void TraceWriter::tensor(const Event& e, const TensorKey& key, const Tally& t, FaultRole role,
                         const TensorStats& stats) {
  TraceRecord r{.step = e.step, .seq = seq_};
  take_statistics(r, stats);
  take_shadow(r, e.got, e.exact, e.shadow);
  take_tally(r, t);
  if (e.range != nullptr) take_range(r, *e.range);
  if (e.cancelled >= 0) {
    r.cancelled = e.cancelled;
    r.most_cancelled = e.most_cancelled;
  }
  r.copy_stagnant = e.copy_stagnant;
  r.second_moment_zero = e.second_moment_zero;
  r.epsilon_zero = e.epsilon_zero;
  std::string& out = pending_;
  if (seqs_) seqs_->try_emplace(key, seq_);
  put(out, "{\"step\":", e.step, ",\"seq\":", seq_++, ",\"phase\":\"", train::name(e.phase), "\",\"cast\":", e.cast,
      ",\"op\":", Quoted{key.op}, ",\"layer\":", Quoted{key.layer}, ",\"tensor\":", Quoted{key.tensor}, ",\"dtype\":\"",
      ampcheck::name(key.dtype), "\",\"from\":\"", e.cast ? ampcheck::name(e.from) : "", "\",\"source\":", e.source,
      ",\"scale\":", e.scale);
  if (e.by_gradient) put(out, ",\"by_gradient\":true");
  if (e.rank > 0) put(out, ",\"rank\":", e.rank);
  put(out, ",\"role\":\"", train::name(role), "\"");
  const std::size_t begin = records_.size();
  append_record(records_, r);
  const std::string_view record = std::string_view(records_).substr(begin);
  if (inline_) {
    out += ",\"record\":\"";
    append_hex(out, record);
    out += "\"}\n";
    records_.clear();
  } else {
    put(out, ",\"at\":[", offset_ + std::ssize(records_) - std::ssize(record), ",", std::ssize(record), ",",
        static_cast<std::int64_t>(record_checksum(record)), "]}\n");
  }
}

void TraceWriter::moved_late(const LateMove& m) {
  put(pending_, "{\"step\":", m.step, ",\"moved_late\":\"", m.what, "\",\"after\":", Quoted{m.after},
      ",\"launched\":", m.launched, ",\"bytes\":", m.bytes, "}\n");
}

void TraceWriter::gradient(const StepResult& s, const GradientError& e) {
  std::string& out = pending_;
  put(out, "{\"step\":", s.step, ",\"parameter\":", Quoted{e.parameter}, ",\"error\":", e.error, ",\"size\":", e.size,
      ",\"apart\":", e.apart, ",\"parts\":[");
  const char* separator = "";
  for (const GradientPart& part : e.parts) {
    const auto seq = seqs_->find(part.from);
    if (seq == seqs_->end()) continue;
    put(out, separator, "[", seq->second, ",", part.moves, ",", part.rounding, "]");
    separator = ",";
  }
  out += "],\"inherited\":[";
  separator = "";
  for (const GradientPart& part : e.inherited) {
    const auto seq = seqs_->find(part.from);
    if (seq == seqs_->end()) continue;
    put(out, separator, "[", seq->second, ",", part.moves, "]");
    separator = ",";
  }
  out += "],\"sums\":[";
  separator = "";
  for (const auto& [of, moves] : e.sums) {
    put(out, separator, "[", Quoted{of}, ",", moves, "]");
    separator = ",";
  }
  out += "]}\n";
}

/// Losses and optimizers, of runs that have several.
void TraceWriter::several(const StepResult& s) {
  const char* separator = ",\"losses\":[";
  for (const double loss : s.losses) {
    put(pending_, separator, loss);
    separator = ",";
  }
  if (!s.losses.empty()) pending_ += "]";
  separator = ",\"optimizers\":[";
  for (const OptimizerStep& o : s.optimizers) {
    put(pending_, separator, "{\"stepped\":", o.stepped, ",\"found_inf\":", o.found_inf, ",\"skips\":", o.skips,
        ",\"lr\":", o.lr);
    if (o.clipping)
      put(pending_, ",\"norm\":", o.clipping->norm, ",\"clip_factor\":", o.clipping->factor,
          ",\"clipped\":", o.clipping->elements);
    pending_ += "}";
    separator = ",";
  }
  if (!s.optimizers.empty()) pending_ += "]";
}

void TraceWriter::step(const StepResult& s) {
  if (seqs_)
    for (const GradientError& e : s.gradient_errors) gradient(s, e);
  if (seqs_) seqs_->clear();
  put(pending_, "{\"step\":", s.step, ",\"loss\":", s.loss, ",\"fp64_loss\":", s.fp64_loss, ",\"spread\":", s.spread,
      ",\"apart\":", s.apart, ",\"rounding\":", s.rounding, ",\"scale\":", s.scale, ",\"scale_after\":", s.scale_after,
      ",\"tracker\":", s.tracker, ",\"found_inf\":", s.found_inf, ",\"stepped\":", s.stepped,
      ",\"stagnant_share\":", s.stagnant_share, ",\"loss_drift\":", s.loss_drift);
  std::optional<double> norm, factor, clipped, decayed, lost;
  if (s.clipping) {
    norm = s.clipping->norm;
    factor = s.clipping->factor;
    clipped = static_cast<double>(s.clipping->elements);
  }
  if (s.decay) {
    decayed = static_cast<double>(s.decay->weights);
    lost = static_cast<double>(s.decay->lost);
  }
  put(pending_, ",\"norm\":", norm, ",\"clip_factor\":", factor, ",\"clipped\":", clipped, ",\"decayed\":", decayed,
      ",\"decay_lost\":", lost);
  several(s);
  pending_ += "}\n";
  seq_ = 0;
  if (!held_) write();
}

void TraceWriter::release(bool written) {
  held_ = false;
  if (written) write();
  drop();
}

void TraceWriter::drop() {
  pending_.clear();
  records_.clear();
}

/// Records before the lines that name them: whenever a run dies, what a whole line names is there.
void TraceWriter::write() {
  if (!records_.empty()) write_all(statistics_, statistics_path(path_), records_);
  offset_ += std::ssize(records_);
  write_all(file_, path_, pending_);
  drop();
}

}  // namespace ampcheck::checks::train
