// SPDX-License-Identifier: Apache-2.0
#include "checks/data/regimes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>

#include "checks/data/aimed_range.h"
#include "checks/data/cotangents.h"
#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/data/regime_tables.h"
#include "src/error.h"
#include "src/rounding.h"
#include "src/suggestion.h"

namespace ampcheck::checks {

namespace {

/// Which inputs a regime is for: the suffix ".first", ".rest" or ".weights".
enum class Part { data, first, rest, weights };

struct Range {
  const DataFamily* family = nullptr;
  double number = 0;
  Part part = Part::data;
};

[[noreturn]] void unknown(const char* where, const std::string& word, const std::vector<RegimeText>& known) {
  std::vector<std::string> names;
  for (const RegimeText& text : known) names.push_back(text.name);
  throw Error(std::string("[") + where + "] unknown regime, got '" + word + "'" + did_you_mean(word, names) +
              ", want a name such as '" + names[1] + "'");
}

/// Number of "scale-9" after the prefix; false if the rest is not one.
bool parse_number(std::string_view text, double& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc{} && end.ptr == text.data() + text.size() && std::fabs(number) <= 1e6;
}

Range parse_range(const std::string& name) {
  std::string_view word = name;
  Range range;
  for (const auto& [suffix, part] :
       {std::pair<std::string_view, Part>{".first", Part::first}, {".rest", Part::rest}, {".weights", Part::weights}})
    if (word.ends_with(suffix)) {
      range.part = part;
      word.remove_suffix(suffix.size());
      break;
    }
  for (const DataFamily& family : data_families()) {
    if (!word.starts_with(family.prefix)) continue;
    const std::string_view rest = word.substr(std::string_view(family.prefix).size());
    if (family.numbers.empty() ? !rest.empty() : !parse_number(rest, range.number)) continue;
    range.family = &family;
    return range;
  }
  unknown("range", std::string(word), data_regimes());
}

/// Whether the regime decides the values of this input; otherwise they are the default ones.
bool governs(const Range& range, const OpSignature& signature, const TensorSpec& spec) {
  if (range.family->fill == nullptr) return false;
  if (is_weight(spec)) return range.part == Part::weights || (range.part == Part::data && range.family->weights_too);
  if (!is_data(spec) || range.part == Part::weights) return false;
  const auto first = std::find_if(signature.inputs.begin(), signature.inputs.end(), is_data);
  return range.part == Part::data || (range.part == Part::first) == (first->name == spec.name);
}

/// A normal number as the role has it.
double as_role(const TensorSpec& spec, double z) {
  return spec.role == Role::weight ? 1 + 0.3 * z : spec.role == Role::bias ? 0.5 * z : z;
}

bool default_is_normal(const TensorSpec& spec) {
  return spec.role != Role::log_probability && spec.role != Role::angle && spec.role != Role::probability &&
         spec.domain != Domain::unit_interval;
}

double default_value(const Fill& f, const TensorSpec& spec, std::int64_t i) {
  if (spec.role == Role::log_probability) return -8 * f.uniform(i);
  if (spec.role == Role::angle) return 2 * f.uniform(i) - 1;
  if (spec.role == Role::probability || spec.domain == Domain::unit_interval) return f.uniform(i);
  return as_role(spec, f.normal(i));
}

bool in_unit_interval(const TensorSpec& spec) {
  return spec.domain == Domain::unit_interval || spec.role == Role::probability;
}

double into_domain(double value, const TensorSpec& spec) {
  const double magnitude = std::fabs(value);
  if (in_unit_interval(spec))
    return magnitude < 1 ? magnitude : std::isinf(magnitude) ? 1 : magnitude / (1 + magnitude);
  if (spec.role == Role::angle)
    return std::copysign(magnitude <= 1 ? magnitude : std::isinf(magnitude) ? 1 : magnitude / (1 + magnitude), value);
  if (spec.domain == Domain::positive) return magnitude;
  return spec.role == Role::log_probability ? -magnitude : value;
}

/// Rounds to nearest even; finite numbers stay finite, infinities too where the format has them.
void round_to(const FloatFormat& format, std::span<double> values) {
  constexpr std::size_t kStep = 1024;
  double rounded[kStep];
  const double infinity = std::numeric_limits<double>::infinity();
  const bool keep = format.has_infinity();
  for (std::size_t start = 0; start < values.size(); start += kStep) {
    const std::span<double> part = values.subspan(start, std::min(kStep, values.size() - start));
    std::int64_t infinite = 0;
    for (const double v : part) infinite += std::fabs(v) == infinity ? 1 : 0;
    if (infinite == 0) {
      round_values(format, {.overflow = Overflow::saturate}, part, part);
      continue;
    }
    round_values(format, {.overflow = Overflow::saturate}, part, {rounded, part.size()});
    for (std::size_t i = 0; i < part.size(); ++i) {
      const double special = keep ? part[i] : std::numeric_limits<double>::quiet_NaN();
      part[i] = std::fabs(part[i]) == infinity ? special : rounded[i];
    }
  }
}

/// Rounding may have reached an end of the open domain.
void keep_domain_open(const FloatFormat& format, const TensorSpec& spec, std::vector<double>& values) {
  if (spec.domain != Domain::positive && !in_unit_interval(spec)) return;
  for (double& value : values) {
    if (spec.domain == Domain::positive && value == 0) value = format.min_normal();
    if (in_unit_interval(spec) && !std::isnan(value))
      value = std::clamp(value, format.min_normal(), 1 - format.unit_roundoff());
  }
}

/// Values of the attributes that are named after an index (ignore_index, padding_idx), where an input may hold them.
std::vector<double> sentinels(const OpSignature& signature, const OpCall& call, const TensorSpec& spec,
                              std::int64_t extent) {
  std::vector<double> out;
  for (const AttributeSpec& attribute : signature.attributes) {
    if (!attribute.is_sentinel()) continue;
    const auto value = call.attributes.all().find(attribute.name);
    const double* number = value == call.attributes.all().end() ? nullptr : std::get_if<double>(&value->second);
    // An index addresses memory, so a sentinel outside the range ("none") is not for it.
    if (number != nullptr && (spec.role == Role::target || (*number >= 0 && *number < static_cast<double>(extent))))
      out.push_back(*number);
  }
  return out;
}

std::vector<double> index_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec,
                                 const Fill& f, std::string_view regime) {
  const auto dim = call.dims.find(spec.index_dim);
  const std::int64_t extent = dim == call.dims.end() ? 1 : dim->second;
  std::vector<double> values(static_cast<std::size_t>(f.frame.count));
  if (values.empty()) return values;
  const std::vector<double> special = sentinels(signature, call, spec, extent);
  if (extent == 0 && special.empty())
    throw Error("[regimes] indices '" + spec.name + "' of " + signature.name + ", got extent 0 of " + spec.index_dim +
                ", want at least 1");
  const std::int64_t percent = regime == "all_sentinels" || extent == 0 ? 100 : regime == "sentinels" ? 50 : 10;
  for (std::int64_t i = 0; i < f.frame.count; ++i) {
    double& value = values[static_cast<std::size_t>(i)];
    if (!special.empty() && static_cast<std::int64_t>(100 * f.uniform(i)) < percent) {
      value = special[static_cast<std::size_t>(f.below(i, static_cast<std::int64_t>(special.size())))];
    } else if (regime == "end_indices") {
      value = f.below(i, 2) == 0 ? 0.0 : static_cast<double>(extent - 1);
    } else {
      value = static_cast<double>(f.below(regime == "same_index" ? 0 : i, extent));
    }
  }
  return values;
}

std::vector<double> mask_values(const Fill& f, std::string_view regime) {
  std::vector<double> values(static_cast<std::size_t>(f.frame.count));
  for (std::int64_t i = 0; i < f.frame.count; ++i)
    values[static_cast<std::size_t>(i)] = regime == "mask_zeros"  ? 0
                                          : regime == "mask_ones" ? 1
                                                                  : static_cast<double>(f.below(i, 2));
  return values;
}

/// Any byte, or its ends alone, where zero points and scales weigh most.
std::vector<double> quantized_values(const Fill& f, std::string_view regime) {
  std::vector<double> values(static_cast<std::size_t>(f.frame.count));
  for (std::int64_t i = 0; i < f.frame.count; ++i)
    values[static_cast<std::size_t>(i)] =
        regime == "end_indices" ? 255.0 * static_cast<double>(f.below(i, 2)) : static_cast<double>(f.below(i, 256));
  return values;
}

Fill fill_of(std::uint64_t seed, const std::string& stream, const Shape& shape, Dtype dtype, double number) {
  return {is_float(dtype) ? format(dtype) : kFp64, Random(seed, stream), Random(seed, stream + "/choices"),
          Frame(shape), number};
}

const CotangentRegime& find_cotangent(const std::string& name) {
  for (const CotangentRegime& row : cotangent_table())
    if (row.name == name) return row;
  unknown("cotangent", name, cotangent_regimes());
}

/// The regime of one probe.
const CotangentRegime& probe_regime(const OpCall& call, int probe) {
  const CotangentRegime& row = find_cotangent(call.cotangent);
  return row.probes.empty() ? row : find_cotangent(row.probes[static_cast<std::size_t>(probe) % row.probes.size()]);
}

}  // namespace

const std::vector<RegimeText>& data_regimes() {
  static const std::vector<RegimeText> kTexts = [] {
    std::vector<RegimeText> texts;
    for (const DataFamily& family : data_families()) {
      if (family.numbers.empty()) texts.push_back({family.prefix, family.purpose});
      for (const char* number : family.numbers) texts.push_back({std::string(family.prefix) + number, family.purpose});
    }
    return texts;
  }();
  return kTexts;
}

const std::vector<RegimeText>& cotangent_regimes() {
  static const std::vector<RegimeText> kTexts = [] {
    std::vector<RegimeText> texts;
    for (const CotangentRegime& row : cotangent_table()) texts.push_back({row.name, row.purpose});
    return texts;
  }();
  return kTexts;
}

const std::vector<RegimeText>& layouts() {
  // "last2:dy" lays out one tensor so and leaves the others dense: equal layouts hide confusions of strides.
  static const std::vector<RegimeText> kTexts = {
      {"dense", "row-major without gaps"},
      {"padded", "rows padded, behind an offset"},
      {"last2", "stride 2 along the last axis"},
      {"transposed", "the last two dimensions exchanged in memory"},
      {"expanded", "stride 0 along the last axis, for cotangents alone (expanded:dy), as of a sum"},
  };
  return kTexts;
}

namespace {

std::vector<double> base_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec) {
  const Range range = parse_range(call.range);
  const Shape shape = call.shape(spec);
  const Fill fill =
      fill_of(call.seed, spec.name + "/" + call.range + shape.str(), shape, call.dtype(spec), range.number);
  if (is_index(spec)) return index_values(signature, call, spec, fill, range.family->prefix);
  if (spec.role == Role::mask) return mask_values(fill, range.family->prefix);
  if (spec.role == Role::quantized) return quantized_values(fill, range.family->prefix);
  const bool governed = governs(range, signature, spec);
  std::vector<double> values(static_cast<std::size_t>(fill.frame.count));
  if (!governed && default_is_normal(spec)) {
    fill.values.normals(0, values);
    const bool as_drawn = !is_weight(spec) && spec.domain == Domain::any;
    for (std::size_t i = 0; !as_drawn && i < values.size(); ++i)
      values[i] = into_domain(as_role(spec, values[i]), spec);
    return values;
  }
  for (std::int64_t i = 0; i < fill.frame.count; ++i)
    values[static_cast<std::size_t>(i)] =
        into_domain(governed ? range.family->fill(fill, i) : default_value(fill, spec, i), spec);
  return values;
}

/// An eighth of the elements at the places where the op has no derivative, in data of any regime but the constant ones.
void draw_kinks(const OpSignature& signature, const OpCall& call, const TensorSpec& spec, std::vector<double>& values) {
  std::vector<double> at;
  for (const Kink& kink : signature.kinks)
    if (kink.input == spec.name) at.push_back(kink.at);
  if (at.empty() || call.range == "zeros") return;
  const Random random(call.seed, spec.name + "/kinks");
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t draw = random.below(i, 8 * at.size());
    if (draw < at.size()) values[i] = at[static_cast<std::size_t>(draw)];
  }
}

/// An aimed input; of the others the values that they have in the regime "normal".
std::vector<double> aimed_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec) {
  for (const AimedInput& aim : parse_aimed_range(signature, call.range)) {
    if (aim.input != spec.name) continue;
    const Shape shape = call.shape(spec);
    const Fill fill =
        fill_of(call.seed, spec.name + "/" + aimed_range({aim}) + shape.str(), shape, call.dtype(spec), 0);
    std::vector<double> values(static_cast<std::size_t>(fill.frame.count));
    for (std::int64_t i = 0; i < fill.frame.count; ++i)
      values[static_cast<std::size_t>(i)] = into_domain(aimed_value(fill, i, aim), spec);
    return values;
  }
  OpCall normal = call;
  normal.range = "normal";
  std::vector<double> values = base_values(signature, normal, spec);
  draw_kinks(signature, normal, spec, values);
  return values;
}

std::vector<double> generated_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec) {
  if (is_aimed_range(call.range)) return aimed_values(signature, call, spec);
  std::vector<double> values = base_values(signature, call, spec);
  if (!signature.kinks.empty()) draw_kinks(signature, call, spec, values);
  return values;
}

/// A case of a real run or of a file with the default cotangents: probe 0 is the real one, the others follow.
bool has_real_probe(const OpCall& call) {
  return call.cotangent == "mixed" &&
         (is_real_range(call.range) || (is_file_range(call.range) && has_file_cotangents(call)));
}

}  // namespace

std::vector<double> input_values(const OpSignature& signature, const OpCall& call, const TensorSpec& spec) {
  if (is_file_range(call.range)) return file_input(call, spec);  // exact and in its domain, or refused before
  std::vector<double> values =
      is_real_range(call.range) ? real_input(signature, call, spec) : generated_values(signature, call, spec);
  const Dtype dtype = call.dtype(spec);
  if (is_float(dtype)) {
    round_to(format(dtype), values);
    keep_domain_open(format(dtype), spec, values);
  } else {
    for (double& value : values) value = std::isfinite(value) ? std::nearbyint(value) : 0;
  }
  return values;
}

int probe_count(const OpCall& call) {
  const CotangentRegime& row = find_cotangent(call.cotangent);
  return (row.probes.empty() ? 1 : static_cast<int>(row.probes.size())) + (has_real_probe(call) ? 1 : 0);
}

namespace {

/// The extremes of a tensor from those of its parts. Of nothing but zeros there is no smallest.
void widen(reference::Extremes& all, const reference::Extremes& part, bool first) {
  if (first || all.largest == 0)
    all.smallest = part.smallest;
  else if (part.largest > 0)
    all.smallest = std::min(all.smallest, part.smallest);
  all.largest = first ? part.largest : std::max(all.largest, part.largest);
  all.finite = (first || all.finite) && part.finite;
  all.zero = (!first && all.zero) || part.zero;
}

}  // namespace

int probe_like(const OpCall& call, int probe) {
  const CotangentRegime& row = find_cotangent(call.cotangent);
  for (int first = 0; first < probe && !row.probes.empty() && !has_real_probe(call); ++first)
    if (std::string_view(probe_regime(call, first).name) == probe_regime(call, probe).name) return first;
  return probe;
}

namespace {

/// Numbers of a probe at other places and with other signs: random numbers cost more than all else about a cotangent.
class Displaced {
 public:
  static constexpr std::int64_t kFewest = 8192;  ///< elements
  static constexpr std::size_t kPart = 2048;     ///< values and bits stay in the nearest cache

  Displaced(const OpCall& call, const std::string& output, int probe, std::int64_t count)
      : signs_(call.seed, gradient_name(output) + "/signs" + std::to_string(probe)),
        count_(count),
        shift_((count * 618 / 1000 + 1) * probe % count) {}  // hardly a multiple of a row

  /// Elements start, start + 1, ... are the next ones; `start` a multiple of kPart.
  void go_to(std::size_t start) {
    from_ = (static_cast<std::int64_t>(start) + shift_) % count_;
    signs_.bits(start / kWord, words_);
  }

  /// Calls fill(from, part) for the one or two runs that the next elements are taken from, and turns signs. Elements
  /// are doubles, or codes of a format whose first bit is the sign.
  template <class T, class F>
  void fill(std::span<T> part, F fill) const {
    const auto n = static_cast<std::size_t>(std::min(std::ssize(part), count_ - from_));
    fill(from_, part.first(n));
    if (n < part.size()) fill(0, part.subspan(n));
    for (std::size_t i = 0; i < part.size(); i += kWord)
      turn(words_[i / kWord], part.subspan(i, std::min(kWord, part.size() - i)));
  }

 private:
  static void turn(std::uint64_t word, std::span<double> part) {
    for (std::size_t k = 0; k < part.size(); ++k)
      part[k] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(part[k]) ^ (word >> k) << 63);
  }
  /// A chunk of the word as wide as a code at a time, and of it the bit of each lane: codes have no shift of their own.
  template <std::unsigned_integral T>
  static void turn(std::uint64_t word, std::span<T> part) {
    constexpr std::size_t kBits = std::numeric_limits<T>::digits;
    static constexpr auto kBit = [] {
      std::array<T, kBits> bits;
      for (std::size_t k = 0; k < kBits; ++k) bits[k] = static_cast<T>(T{1} << k);
      return bits;
    }();
    for (std::size_t i = 0; i < part.size(); i += kBits) {
      const auto chunk = static_cast<T>(word >> i);
      const std::size_t n = std::min(kBits, part.size() - i);
      for (std::size_t k = 0; k < n; ++k) part[i + k] ^= static_cast<T>(chunk & kBit[k]) != 0 ? kBit.back() : T{0};
    }
  }

  static constexpr std::size_t kWord = 64;  ///< signs

  Random signs_;
  std::int64_t count_, shift_, from_ = 0;
  std::array<std::uint64_t, kPart / kWord> words_;
};

/// The codes of a displaced part from those of the numbers that it is taken from.
template <class T>
void displace_codes(const Displaced& places, const std::byte* like, std::size_t start, std::size_t n, std::byte* to) {
  const auto* const from = reinterpret_cast<const T*>(like);
  places.fill(std::span(reinterpret_cast<T*>(to) + start, n),
              [from](std::int64_t first, std::span<T> part) { std::copy_n(from + first, part.size(), part.begin()); });
}

/// What of the tensors at hand makes the numbers of a part.
struct Source {
  const CotangentRegime& row;
  const Fill& fill;
  bool given;         ///< they are there already
  bool displaced;     ///< those of another probe, at other places
  const Drawn* like;  ///< these, rounded; null: they are drawn anew
};

/// The numbers [start, start + part) of a cotangent.
void draw(const Source& from, Displaced& places, std::size_t start, std::span<double> part) {
  const auto first = static_cast<std::int64_t>(start);
  if (from.displaced) places.go_to(start);
  if (from.like != nullptr)
    places.fill(part, [&](std::int64_t at, std::span<double> to) {
      std::copy_n(from.like->values.begin() + at, to.size(), to.begin());
    });
  else if (from.displaced)
    places.fill(part, [&](std::int64_t at, std::span<double> to) { from.row.bulk(from.fill, at, to); });
  else if (!from.given && from.row.bulk != nullptr)
    from.row.bulk(from.fill, first, part);
  else if (!from.given)
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = from.row.fill(from.fill, static_cast<std::int64_t>(start + i));
}

/// Their bits in storage: displaced as the numbers are, where those of `like` are known.
void put_bits(const Source& from, const Displaced& places, std::size_t start, std::span<const double> part,
              const CotangentBits& bits) {
  if (bits.to == nullptr) return;
  const int bytes = from.fill.format.storage_bytes();
  const std::byte* const codes = from.like != nullptr ? from.like->bits : nullptr;
  if (codes != nullptr && bytes == 2)
    displace_codes<std::uint16_t>(places, codes, start, part.size(), bits.to);
  else if (codes != nullptr && bytes == 4)
    displace_codes<std::uint32_t>(places, codes, start, part.size(), bits.to);
  else
    encode(from.fill.format, RoundingMode{}, part, bits.to + start * static_cast<std::size_t>(bytes));
}

}  // namespace

std::vector<double> cotangent_values(const OpCall& call, const std::string& output, const Shape& shape, Dtype dtype,
                                     int probe, std::vector<double> room, CotangentBits& bits, const Drawn* like) {
  std::vector<double> values = std::move(room);
  std::optional<std::vector<double>> given;
  if (has_real_probe(call) && probe-- == 0)
    given = is_file_range(call.range) ? file_cotangent(call, output) : real_cotangent(call, output, shape);
  probe = std::max(probe, 0);  // of several outputs a file may have the cotangents of some
  const CotangentRegime& row = probe_regime(call, probe);
  const int like_probe = probe_like(call, probe);
  const bool displaced = !given && row.bulk != nullptr && shape.count() >= Displaced::kFewest && like_probe != probe;
  Displaced places(call, output, probe, std::max<std::int64_t>(shape.count(), 1));
  const int drawn = displaced ? like_probe : probe;
  const Fill fill =
      fill_of(call.seed, gradient_name(output) + "/" + row.name + std::to_string(drawn) + shape.str(), shape, dtype, 0);
  const bool is_given = given.has_value();
  if (given)
    values = std::move(*given);
  else
    values.resize(static_cast<std::size_t>(fill.frame.count));
  const Source source{row, fill, is_given, displaced, displaced ? like : nullptr};
  const bool rounded = source.like != nullptr;
  bits.range = {};
  for (std::size_t start = 0; start < values.size(); start += Displaced::kPart) {
    const std::span<double> part = std::span(values).subspan(start, std::min(Displaced::kPart, values.size() - start));
    draw(source, places, start, part);
    if (is_float(dtype) && !rounded && (is_given || !row.representable)) round_to(fill.format, part);
    put_bits(source, places, start, part, bits);
    if (!rounded) widen(bits.range, reference::extremes_of(part), start == 0);
  }
  if (rounded) bits.range = like->range;
  bits.range.grid = is_given ? 0 : row.grid;
  return values;
}

std::vector<double> cotangent_values(const OpCall& call, const std::string& output, const Shape& shape, Dtype dtype,
                                     int probe, std::vector<double> room) {
  CotangentBits bits;
  return cotangent_values(call, output, shape, dtype, probe, std::move(room), bits);
}

bool full_mantissas(const OpCall& call, int probe) {
  return (has_real_probe(call) && probe-- == 0) || probe_regime(call, probe).full_mantissas;
}

int relations_probe(const OpCall& call) {
  int out = 0;
  for (int probe = 0; probe < probe_count(call); ++probe)
    if (full_mantissas(call, probe)) out = probe;
  return out;
}

void require_regimes(const OpSignature& signature, const OpCall& call) {
  if (is_aimed_range(call.range))
    parse_aimed_range(signature, call.range);
  else if (!is_real_range(call.range) && !is_file_range(call.range))
    parse_range(call.range);
  find_cotangent(call.cotangent);
  const std::size_t colon = call.layout.find(':');
  const std::string kind = call.layout.substr(0, colon);
  if (std::none_of(layouts().begin(), layouts().end(), [&](const RegimeText& text) { return text.name == kind; }))
    unknown("layout", kind, layouts());
  if (colon == std::string::npos) return;
  // A tensor of the call: an input, an output, or the gradient or cotangent of one.
  const std::string tensor = call.layout.substr(colon + 1);
  std::vector<std::string> names;
  for (const TensorSpec& spec : signature.inputs) names.insert(names.end(), {spec.name, gradient_name(spec.name)});
  for (const OutputSpec& spec : signature.outputs) names.insert(names.end(), {spec.name, gradient_name(spec.name)});
  for (const OutputSpec& spec : signature.saved) names.push_back(spec.name);
  if (std::find(names.begin(), names.end(), tensor) == names.end())
    throw Error("[layout] got tensor '" + tensor + "' in '" + call.layout +
                "', want an input, output, gradient or cotangent of " + signature.name);
}

}  // namespace ampcheck::checks
