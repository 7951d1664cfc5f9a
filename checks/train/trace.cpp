// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "src/amp/tensor_stats.h"
#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck::checks::train {

namespace {

/// As JSON: "nan", "inf" and "-inf" are text; shortest digits that read back.
std::string json(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value < 0 ? "\"-inf\"" : "\"inf\"";
  return fmt::format("{}", value);
}
std::string json(const std::optional<double>& value) { return value ? json(*value) : "null"; }

/// Names hold letters, digits, points and underscores, or come from a user's net.
std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  }
  return out + "\"";
}

/// The statistics of one tensor by itself. The lowest exponent holds all subnormal numbers.
std::string statistics(const TensorView& view) {
  const TensorStats stats = tensor_stats(view);
  const FloatFormat& f = format(view.dtype);
  std::vector<std::int64_t> counts = {stats.subnormals};
  for (int e = f.min_exponent(); e <= f.max_exponent(); ++e) counts.push_back(stats.with_exponent(e));
  int first = f.min_exponent() - 1;
  const auto some = [](std::int64_t n) { return n > 0; };
  const auto begin = std::find_if(counts.begin(), counts.end(), some);
  first += static_cast<int>(begin - counts.begin());
  const auto end = std::find_if(counts.rbegin(), counts.rend(), some).base();
  std::string histogram;
  for (auto n = begin; n < end; ++n) histogram += fmt::format("{}{}", histogram.empty() ? "" : ",", *n);
  return fmt::format("\"elements\":{},\"zero\":{},\"subnormal\":{},\"inf\":{},\"nan\":{},\"amax\":{},\"amin\":{},\"exponents\":[{},[{}]]", stats.count, stats.zeros, stats.subnormals, stats.infinities(), stats.nans,
                     json(stats.amax_finite()), json(stats.amin()), histogram.empty() ? 0 : first, histogram);
}

/// Against the local shadow, in ulps of the tensor's format.
std::string shadow(const TensorView& got, const TensorView& exact) {
  if (exact.data == nullptr || exact.count() == 0) return "\"subnormal_loss\":0,\"saturated\":0,\"bias\":null,\"bias_z\":null,\"ulps\":[]";
  const ShadowStats s = shadow_stats(got, exact);
  std::string ulps = std::to_string(s.exact);
  std::size_t last = 0;
  for (std::size_t i = 0; i < s.ulps.size(); ++i)
    if (s.ulps[i] > 0) last = i + 1;
  for (std::size_t i = 0; i < last; ++i) ulps += fmt::format(",{}", s.ulps[i]);
  return fmt::format("\"subnormal_loss\":{},\"saturated\":{},\"bias\":{},\"bias_z\":{},\"ulps\":[{}]", s.subnormal_loss, s.saturated, json(s.bias()), json(s.bias_z()), ulps);
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw WriteError("[trace] " + path + ", got " + std::strerror(errno) + " when " + what + ", want a file that can be written");
}

/// Cuts a trace off before step `next`, or after its last whole step, and a torn last line with it. False: there is none.
bool cut_after_step(const std::string& path, int next) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return false;
  const std::string text = read_bytes(path, "trace");
  std::size_t keep = text.find('\n') + 1, begin = 0;  // the first line
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    int step = -1;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    constexpr std::string_view kStart = "{\"step\":";
    if (!line.starts_with(kStart)) continue;
    std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
    if (step >= next) break;
    if (line.find("\"loss\":") != std::string_view::npos && line.find("\"seq\":") == std::string_view::npos) keep = end + 1;
  }
  std::filesystem::resize_file(path, keep);
  return keep > 0;
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, const Trainer& trainer, int steps, bool resumed) : path_(path) {
  const bool appends = resumed && cut_after_step(path, trainer.steps());
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (appends ? 0 : O_TRUNC), 0644);
  if (file_ < 0) fail(path_, "opening it");
  if (appends) return;
  const TrainOptions& o = trainer.options();
  pending_ = fmt::format("{{\"schema\":\"ampcheck.trace/1\",\"model\":{},\"dtype\":\"{}\",\"scaler\":\"{}\",\"seed\":{},\"steps\":{},\"local\":{},\"carried\":{}}}\n", json(trainer.net().name), name(o.dtype),
                         scaler_name(o), o.seed, steps, o.shadows.local, o.shadows.carried);
}

TraceWriter::~TraceWriter() {
  if (file_ >= 0) ::close(file_);
}

void TraceWriter::tensor(const Event& e, const TensorKey& key, const Tally& t, FaultRole role) {
  const bool shadowed = t.error2 > 0 || t.exact2 > 0 || t.nonzero > 0;
  const std::optional<double> local = shadowed ? std::optional(t.local_error()) : std::nullopt;
  const std::optional<double> carried = t.carried2 > 0 || t.carried_error2 > 0 ? std::optional(t.carried_error()) : std::nullopt;
  pending_ += fmt::format(
      "{{\"step\":{},\"seq\":{},\"phase\":\"{}\",\"cast\":{},\"op\":{},\"layer\":{},\"tensor\":{},\"dtype\":\"{}\",\"from\":\"{}\",\"source\":{},\"scale\":{},{},\"nonzero\":{},\"flushed\":{},\"overflowed\":{},"
      "\"local_error\":{},{},\"carried_error\":{},\"intended\":{},\"stagnant\":{},\"role\":\"{}\"}}\n",
      e.step, seq_++, train::name(e.phase), e.cast, json(key.op), json(key.layer), json(key.tensor), ampcheck::name(key.dtype), e.cast ? ampcheck::name(e.from) : "", e.source, json(e.scale), statistics(e.got),
      t.nonzero, t.flushed, t.overflowed, json(local), shadow(e.got, e.exact), json(carried), t.intended, t.stagnant, train::name(role));
}

void TraceWriter::step(const StepResult& s) {
  pending_ += fmt::format("{{\"step\":{},\"loss\":{},\"fp64_loss\":{},\"spread\":{},\"scale\":{},\"scale_after\":{},\"found_inf\":{},\"stepped\":{},\"stagnant_share\":{}}}\n", s.step, json(s.loss),
                          json(s.fp64_loss), json(s.spread), json(s.scale), json(s.scale_after), s.found_inf, s.stepped, json(s.stagnant_share));
  seq_ = 0;
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
