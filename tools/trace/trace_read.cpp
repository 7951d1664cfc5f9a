// SPDX-License-Identifier: Apache-2.0
// Reads a trace: lines, and the records that they name.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "checks/define/op_def.h"
#include "checks/train/trace_record.h"
#include "src/amp/autocast_tables.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using checks::train::Histogram;
using checks::train::TraceRecord;

constexpr const char* kWant = ", want a line of an ampcheck.trace/2 (ampcheck train --record writes it)";

double number(const Json& j) {
  if (!j.is_string()) return j.get<double>();
  const auto& text = j.get_ref<const std::string&>();
  return text == "nan" ? std::numeric_limits<double>::quiet_NaN() : text == "-inf" ? -INFINITY : INFINITY;
}

std::optional<double> maybe(const Json& j) { return j.is_null() ? std::nullopt : std::optional(number(j)); }
std::optional<double> maybe(const Json& j, const char* key) {
  return j.contains(key) ? maybe(j.at(key)) : std::nullopt;
}

/// A whole number from `least` to `most`.
std::int64_t whole(const Json& j, std::int64_t least = 0,
                   std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) ||
      j.get<std::int64_t>() < least || j.get<std::int64_t>() > most)
    throw Error(j.dump());
  return j.get<std::int64_t>();
}
std::int64_t count(const Json& j) { return whole(j, 0, checks::train::kMostElements); }
std::int64_t count(const Json& j, const char* key) { return j.contains(key) ? count(j.at(key)) : 0; }
int small(const Json& j, int least = 0, int most = std::numeric_limits<int>::max() - 1) {
  return static_cast<int>(whole(j, least, most));
}

constexpr std::int64_t kMostExtent = std::int64_t{1} << 20;  ///< of a batch or a width: a net is made of it

std::vector<std::int64_t> counts_of(const Json& j) {
  std::vector<std::int64_t> out;
  for (const Json& n : j) out.push_back(count(n));
  if (!j.is_array() || out.size() > checks::train::kMostCounts) throw Error("counts " + j.dump().substr(0, 80));
  return out;
}
Histogram histogram_of(const Json& first, const Json& counts) {
  return {small(first, -checks::train::kMostExponent, checks::train::kMostExponent), counts_of(counts)};
}

Dtype dtype_of(const Json& j) {
  const DtypeInfo* dtype = find_dtype(j.at("dtype").get<std::string>());
  if (dtype == nullptr || dtype->format == nullptr) throw Error("dtype " + j.at("dtype").dump());
  return dtype->dtype;
}

/// The statistics in a line of ampcheck.trace/1.
TraceRecord record_of_line(const Json& j) {
  TraceRecord r;
  r.elements = count(j.at("elements"));
  r.zero = count(j.at("zero"));
  r.subnormal = count(j.at("subnormal"));
  r.inf = count(j.at("inf"));
  r.nan = count(j.at("nan"));
  r.amax = number(j.at("amax"));
  r.amin = number(j.at("amin"));
  r.exponents = histogram_of(j.at("exponents").at(0), j.at("exponents").at(1));
  r.nonzero = count(j.at("nonzero"));
  r.flushed = count(j.at("flushed"));
  r.overflowed = count(j.at("overflowed"));
  r.intended = count(j.at("intended"));
  r.stagnant = count(j.at("stagnant"));
  r.subnormal_loss = count(j.at("subnormal_loss"));
  r.saturated = count(j.at("saturated"));
  r.bias = maybe(j.at("bias"));
  r.bias_z = maybe(j.at("bias_z"));
  r.ulps = counts_of(j.at("ulps"));
  r.local_error = maybe(j.at("local_error"));
  r.carried_error = maybe(j.at("carried_error"));
  r.loss_error = maybe(j, "loss_error");
  r.norm_error = maybe(j, "norm_error");
  if (j.contains("range")) {
    const Json& range = j.at("range");
    r.range_least = number(range.at(0));
    r.range_most = number(range.at(1));
    r.range_exponents = histogram_of(range.at(2), range.at(3));
    if (range.size() > 4) r.range_powers = counts_of(range.at(4));
  }
  r.exact_rms = maybe(j, "exact_rms");
  r.fp64_rms = maybe(j, "fp64_rms");
  if (j.contains("cancelled")) {
    r.cancelled = number(j.at("cancelled").at(0));
    r.most_cancelled = number(j.at("cancelled").at(1));
  }
  r.copy_stagnant = count(j, "copy_stagnant");
  r.second_moment_zero = count(j, "second_moment_zero");
  r.epsilon_zero = count(j, "epsilon_zero");
  if (j.contains("decisions")) {
    const Json& d = j.at("decisions");
    r.decisions = count(d.at(0));
    r.flipped = count(d.at(1));
    r.undecided = count(d.at(2));
    r.least_margin = number(d.at(3));
    r.margins = number(d.at(4));
    r.radii = number(d.at(5));
  }
  return r;
}

void take_record(TracedTensor& t, TraceRecord&& r) {
  t.elements = r.elements;
  t.zero = r.zero;
  t.subnormal = r.subnormal;
  t.inf = r.inf;
  t.nan = r.nan;
  t.amax = r.amax;
  t.amin = r.amin;
  t.first_exponent = r.exponents.first;
  t.exponents = std::move(r.exponents.counts);
  t.nonzero = r.nonzero;
  t.flushed = r.flushed;
  t.overflowed = r.overflowed;
  t.intended = r.intended;
  t.stagnant = r.stagnant;
  t.subnormal_loss = r.subnormal_loss;
  t.saturated = r.saturated;
  t.bias = r.bias;
  t.bias_z = r.bias_z;
  t.ulps = std::move(r.ulps);
  t.local_error = r.local_error;
  t.carried_error = r.carried_error;
  t.sizes = {r.exact_rms, r.fp64_rms};
  if (r.loss_error) {
    t.loss_error = r.loss_error;
    t.loss_error2 = *r.loss_error * *r.loss_error;
  }
  if (r.norm_error) {
    t.norm_error = r.norm_error;
    t.norm_error2 = *r.norm_error * *r.norm_error;
  }
  if (!r.range_exponents.counts.empty())
    t.range = TracedTensor::Range{r.range_least, r.range_most, r.range_exponents.first,
                                  std::move(r.range_exponents.counts), std::move(r.range_powers)};
  t.cancelled = r.cancelled;
  t.most_cancelled = r.most_cancelled;
  t.copy_stagnant = r.copy_stagnant;
  t.second_moment_zero = r.second_moment_zero;
  t.epsilon_zero = r.epsilon_zero;
  t.decisions = r.decisions;
  t.flipped = r.flipped;
  t.undecided = r.undecided;
  t.least_margin = r.least_margin;
  t.margins = r.margins;
  t.radii = r.radii;
}

/// What lies in a step's records and is not there.
struct Lost {
  std::size_t tensor;  ///< its place in the trace
  int step;
  std::int64_t offset;
  bool cut_off;
};

/// Reads the lines of a trace.
class Reader {
 public:
  Reader(std::string_view text, std::optional<std::string_view> statistics, const std::string& path)
      : text_(text), statistics_(statistics), path_(path) {}
  Trace read();

 private:
  void take_line(const Json& j);
  TracedTensor tensor(const Json& j);
  void find_record(TracedTensor& t, const Json& at);
  TracedGradient gradient(const Json& j) const;
  void run(const Json& j);
  void leave_out();

  std::string_view text_;
  std::optional<std::string_view> statistics_;
  const std::string& path_;
  Trace trace_;
  std::size_t tensors_ = 0, gradients_ = 0;  ///< of steps that ended
  std::int64_t found_ = 0;
  std::vector<Lost> lost_;
};

TracedTensor Reader::tensor(const Json& j) {
  TracedTensor t;
  t.step = small(j.at("step"));
  t.seq = small(j.at("seq"));
  t.source = small(j.at("source"), -1);
  t.rank = j.contains("rank") ? small(j.at("rank")) : 0;
  t.phase = j.at("phase");
  t.op = j.at("op");
  t.layer = j.at("layer");
  t.tensor = j.at("tensor");
  t.role = j.at("role");
  t.from = j.at("from");
  t.phase_number();  // there is one of that name
  t.cast = j.at("cast");
  t.dtype = dtype_of(j);
  t.scale = number(j.at("scale"));
  t.by_gradient = j.value("by_gradient", false);
  if (j.contains("at"))
    find_record(t, j.at("at"));
  else
    take_record(t, j.contains("record")
                       ? checks::train::read_record(bytes_of_hex(j.at("record").get_ref<const std::string&>()))
                       : record_of_line(j));
  return t;
}

/// A record that is not there, or not as its line has it, is lost; a line that cannot be is an Error.
void Reader::find_record(TracedTensor& t, const Json& at) {
  const std::int64_t offset = whole(at.at(0)),
                     length = whole(at.at(1), static_cast<std::int64_t>(checks::train::kRecordHeader)),
                     checksum = whole(at.at(2));
  const std::int64_t size = statistics_ ? std::ssize(*statistics_) : 0;
  if (offset > size || length > size - offset)
    return lost_.push_back({trace_.tensors.size(), t.step, std::min(offset, size), true});
  const std::string_view bytes =
      statistics_->substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(length));
  try {
    if (checks::train::record_checksum(bytes) != checksum) throw Error("another record");
    TraceRecord record = checks::train::read_record(bytes);
    if (record.step != t.step || record.seq != t.seq) throw Error("another tensor's record");
    take_record(t, std::move(record));
    ++found_;
  } catch (const Error&) {
    lost_.push_back({trace_.tensors.size(), t.step, offset, false});
  }
}

checks::train::OptimizerStep optimizer_of(const Json& j) {
  checks::train::OptimizerStep out{.found_inf = j.at("found_inf"),
                                   .stepped = j.at("stepped"),
                                   .skips = small(j.at("skips")),
                                   .lr = number(j.at("lr"))};
  if (const auto factor = maybe(j, "clip_factor"))
    out.clipping = {maybe(j.at("norm")), *factor, count(j.at("clipped"))};
  return out;
}

TracedStep step_of(const Json& j) {
  TracedStep s;
  s.step = small(j.at("step"));
  s.loss = number(j.at("loss"));
  s.scale = number(j.at("scale"));
  s.scale_after = number(j.at("scale_after"));
  s.stagnant_share = number(j.at("stagnant_share"));
  s.fp64_loss = maybe(j.at("fp64_loss"));
  s.spread = maybe(j.at("spread"));
  if (j.contains("apart")) {
    s.apart = maybe(j.at("apart"));
    s.rounding = maybe(j.at("rounding"));
  }
  s.loss_drift = maybe(j, "loss_drift");
  if (const auto factor = maybe(j, "clip_factor")) s.clipping = {maybe(j.at("norm")), *factor, count(j.at("clipped"))};
  for (const Json& loss : j.value("losses", Json::array())) s.losses.push_back(number(loss));
  for (const Json& own : j.value("optimizers", Json::array())) s.optimizers.push_back(optimizer_of(own));
  if (maybe(j, "decayed")) s.decay = {count(j.at("decayed")), count(j.at("decay_lost"))};
  s.found_inf = j.at("found_inf");
  s.stepped = j.at("stepped");
  s.tracker = j.contains("tracker") ? small(j.at("tracker")) : 0;
  return s;
}

/// "relu_1 choices that flip": what an op makes of errors of its inputs that its derivatives do not.
std::string beyond_derivatives_text(const TracedTensor& output) {
  constexpr std::string_view kPieces[] = {"relu", "leaky_relu", "clamp", "max", "min", "max_pool2d"};  // straight ones
  const std::string op = output.op.substr(0, output.op.rfind('_'));
  const bool chooses = std::find(std::begin(kPieces), std::end(kPieces), op) != std::end(kPieces);
  const std::string whose = output.layer.empty() ? output.op : output.op + " (" + output.layer + ")";
  return whose + (chooses                          ? " choices that flip"
                  : checks::find_op(op) != nullptr ? " products of errors"
                                                   : " flips or products of errors");
}

/// Its parts are tensors of the same step, which has not ended.
TracedGradient Reader::gradient(const Json& j) const {
  TracedGradient g;
  g.step = small(j.at("step"));
  g.parameter = j.at("parameter");
  g.error = number(j.at("error"));
  g.size = number(j.at("size"));
  g.apart = number(j.at("apart"));
  for (const Json& part : j.at("parts")) {
    const int seq = small(part.at(0));
    const std::size_t at = tensors_ + static_cast<std::size_t>(seq);
    if (at >= trace_.tensors.size() || trace_.tensors[at].seq != seq) throw Error("seq " + part.at(0).dump());
    g.parts.push_back({trace_.tensors[at].name(), seq, number(part.at(1)), number(part.at(2))});
  }
  for (const Json& part : j.value("inherited", Json::array())) {  // which older traces have not
    const std::size_t at = tensors_ + static_cast<std::size_t>(small(part.at(0)));
    if (at >= trace_.tensors.size()) throw Error("seq " + part.at(0).dump());
    g.others.push_back({beyond_derivatives_text(trace_.tensors[at]), 0, number(part.at(1)), 0});
  }
  for (const Json& part : j.value("sums", Json::array()))
    g.others.push_back({"sum of gradients of " + part.at(0).get<std::string>(), 0, number(part.at(1)), 0});
  return g;
}

void Reader::run(const Json& j) {
  if (j.at("schema") != "ampcheck.trace/2" && j.at("schema") != "ampcheck.trace/1")
    throw Error("schema " + j.at("schema").dump());
  trace_.model = j.at("model");
  trace_.dtype = name(dtype_of(j));
  trace_.fp8 = j.value("fp8", "");
  trace_.losses = j.value("losses", std::vector<std::string>());
  trace_.optimizers = j.value("optimizers", std::vector<std::string>());
  trace_.scaler = j.at("scaler");
  trace_.autocast =
      j.value("autocast", trace_.dtype == "fp32" ? "none" : "cuda");  // traces that do not say it are of that list
  trace_.autocast_tables = j.value("autocast_tables", kAutocastTablesVersion);
  trace_.seed = static_cast<std::uint64_t>(whole(j.at("seed"), std::numeric_limits<std::int64_t>::min()));
  trace_.steps_wanted = small(j.at("steps"));
  trace_.local = j.at("local");
  trace_.carried = j.at("carried");
  trace_.net = j.value("net", "");
  trace_.loss_kind = j.value("loss_kind", "");
  trace_.batch = j.contains("batch") ? whole(j.at("batch"), 0, kMostExtent) : 0;
  trace_.width = j.contains("width") ? whole(j.at("width"), 0, kMostExtent) : 0;
}

/// What a step wrote stands before its line: pages count on no tensor of a step that never ended.
void require_step(int of_tensor, int step) {
  if (of_tensor > step)
    throw Error(fmt::format("numbers of step {} before the line of step {}", of_tensor + std::int64_t{1},
                            step + std::int64_t{1}));
}

void Reader::take_line(const Json& j) {
  if (j.contains("seq")) {
    trace_.tensors.push_back(tensor(j));
  } else if (j.contains("moved_late")) {
    trace_.moves.push_back(
        {small(j.at("step")), j.at("moved_late"), j.at("after"), whole(j.at("launched")), whole(j.at("bytes"))});
  } else if (j.contains("parameter")) {
    trace_.gradients.push_back(gradient(j));
  } else if (j.contains("loss")) {
    const TracedStep step = step_of(j);
    for (std::size_t i = tensors_; i < trace_.tensors.size(); ++i) require_step(trace_.tensors[i].step, step.step);
    for (std::size_t i = gradients_; i < trace_.gradients.size(); ++i)
      require_step(trace_.gradients[i].step, step.step);
    if (trace_.steps.empty() || step.step > trace_.steps.back().step)
      trace_.steps.push_back(step);  // else one before a fault, which is known
    tensors_ = trace_.tensors.size();
    gradients_ = trace_.gradients.size();
  } else {
    run(j);
  }
}

/// Steps whose statistics are not whole lose all of them: sums over a part would be taken for those of the step.
void Reader::leave_out() {
  const std::string beside = checks::train::statistics_path(path_);
  if (!statistics_)
    throw Error("[trace] got no '" + beside + "', want the statistics that '" + path_ +
                "' names (ampcheck train --record writes both)");
  std::set<int> steps;
  Trace::Missing missing{.path = beside, .from = std::numeric_limits<std::int64_t>::max()};
  for (const Lost& lost : lost_) {
    steps.insert(lost.step);
    missing.from = std::min(missing.from, lost.offset);
    missing.cut_off &= lost.cut_off;
  }
  if (found_ == 0 && !missing.cut_off)
    throw Error("[trace] got '" + beside + "', in which none of the records is that '" + path_ +
                "' names, want the file that was written with it");
  missing.first_step = *steps.begin();
  missing.last_step = *steps.rbegin();
  missing.steps = std::ssize(steps);
  missing.tensors = std::erase_if(trace_.tensors, [&](const TracedTensor& t) { return steps.contains(t.step); });
  std::erase_if(trace_.gradients, [&](const TracedGradient& g) { return steps.contains(g.step); });
  trace_.missing = missing;
}

/// Finds out which tensors are noise: by their sizes over all steps.
void mark_noise(Trace& trace) {
  struct Squares {
    checks::train::Phase phase;
    double exact = 0, fp64 = 0, elements = 0;
    bool has_exact = false, has_fp64 = false;
    checks::train::Sizes sizes() const {
      return {has_exact ? std::optional(std::sqrt(exact / elements)) : std::nullopt,
              has_fp64 ? std::optional(std::sqrt(fp64 / elements)) : std::nullopt};
    }
  };
  std::map<std::string, Squares> all;
  for (const TracedTensor& t : trace.tensors) {
    Squares& s = all.try_emplace(t.name(), Squares{t.phase_number()}).first->second;
    const auto n = static_cast<double>(t.elements);
    s.elements += n;
    if (t.sizes.exact) {
      s.exact += *t.sizes.exact * *t.sizes.exact * n;
      s.has_exact = true;
    }
    if (t.sizes.fp64) {
      s.fp64 += *t.sizes.fp64 * *t.sizes.fp64 * n;
      s.has_fp64 = true;
    }
  }
  checks::train::Noise noise;
  for (const auto& [name, s] : all) noise.add(s.phase, s.sizes());
  for (TracedTensor& t : trace.tensors) {
    const Squares& s = all.at(t.name());
    t.noise = noise.is(s.phase, s.sizes());
  }
}

Trace Reader::read() {
  trace_.path = path_;
  std::size_t begin = 0;
  for (int number = 1; begin < text_.size(); ++number) {
    const std::size_t end = text_.find('\n', begin);
    if (end == std::string_view::npos) {
      trace_.torn = true;
      break;
    }
    const std::string_view line = text_.substr(begin, end - begin);
    begin = end + 1;
    try {
      take_line(Json::parse(line));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      throw Error("[trace] " + path_ + " line " + std::to_string(number) + ", got " + error.what() + kWant);
    }
    if (number == 1 && trace_.model.empty())
      throw Error("[trace] " + path_ + " line 1, got another line, want the schema ampcheck.trace/2");
  }
  if (trace_.model.empty())
    throw Error("[trace] " + path_ +
                ", got an empty file, want an ampcheck.trace/2 (ampcheck train --record writes it)");
  if (!trace_.steps.empty())
    trace_.steps_wanted =
        std::max(trace_.steps_wanted,
                 trace_.steps.back().step + 1);  // earlier versions kept the first line of a run that went on
  trace_.tensors.resize(tensors_);
  trace_.gradients.resize(gradients_);  // what was written after the last whole step belongs to none
  std::erase_if(lost_, [&](const Lost& lost) { return lost.tensor >= tensors_; });
  if (!lost_.empty()) leave_out();
  std::stable_sort(trace_.tensors.begin(), trace_.tensors.end(),
                   [](const TracedTensor& a, const TracedTensor& b) { return a.step < b.step; });
  mark_noise(trace_);
  return std::move(trace_);
}

}  // namespace

std::string bytes_of_hex(const std::string& text) {
  if (text.size() % 2 != 0) throw Error("a record of half a byte");
  std::string out(text.size() / 2, '\0');
  for (std::size_t i = 0; i < out.size(); ++i) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, byte, 16);
    if (error != std::errc() || end != text.data() + 2 * i + 2) throw Error("a record of other digits");
    out[i] = static_cast<char>(byte);
  }
  return out;
}

std::string missing_text(const Trace::Missing& m) {
  return fmt::format("statistics of {} ({} tensors) are missing: '{}' {} byte {}",
                     m.first_step == m.last_step
                         ? fmt::format("step {}", m.first_step + 1)
                         : fmt::format("{} steps from {} to {}", grouped(m.steps), m.first_step + 1, m.last_step + 1),
                     grouped(m.tensors), m.path, m.cut_off ? "ends at" : "is damaged, or another trace's, from",
                     grouped(m.from));
}

Trace parse_trace(std::string_view text, std::optional<std::string_view> statistics, const std::string& path) {
  return Reader(text, statistics, path).read();
}

Trace read_trace(const std::string& path) {
  const std::string text = read_bytes(path, "trace"), beside = checks::train::statistics_path(path);
  std::error_code none;
  if (!std::filesystem::exists(beside, none)) return parse_trace(text, std::nullopt, path);
  const std::string statistics = read_bytes(beside, "trace");
  return parse_trace(text, statistics, path);
}

}  // namespace ampcheck::tools
