// SPDX-License-Identifier: Apache-2.0
// The statistics of one tensor of one step as a record of a trace's binary file. trace_fields.cpp says what each number
// is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::checks::train {

/// How many magnitudes have which exponent: counts[0] those in [2^first, 2^(first+1)).
struct Histogram {
  int first = 0;
  std::vector<std::int64_t> counts;
};

/// Counts are of elements, and not negative.
struct TraceRecord {
  int step = 0, seq = 0;  ///< as the line that names the record has them
  std::int64_t elements = 0, zero = 0, subnormal = 0, inf = 0, nan = 0, nonzero = 0, flushed = 0, overflowed = 0,
               subnormal_loss = 0, saturated = 0;
  double amax = 0, amin = 0;
  Histogram exponents;
  std::optional<double> local_error, carried_error, bias, bias_z, exact_rms, fp64_rms;
  std::vector<std::int64_t> ulps;
  double range_least = 0, range_most = 0;  ///< of a gradient's exact values, where range_exponents has any
  Histogram range_exponents;
  std::vector<std::int64_t> range_powers;
  std::optional<double> cancelled, most_cancelled, loss_error, loss_reach, norm_error;
  std::int64_t decisions = 0, flipped = 0, undecided = 0;
  double least_margin = 0, margins = 0, radii = 0;
  std::int64_t intended = 0, stagnant = 0, copy_stagnant = 0, second_moment_zero = 0, epsilon_zero = 0;
};

/// What stands in a payload for a field.
enum class RecordType : std::uint8_t { count, value, counts, histogram };

struct RecordField {
  const char* key;
  RecordType type;
  const char* unit;
  const char* meaning;  ///< lines that fit a terminal
};
/// In the order of their bits.
std::span<const RecordField> record_fields();

/// Calls visit(field) with every field of a record, in the order of record_fields().
template <class Record, class Visit>
void each_record_field(Record& r, const Visit& visit) {
  const auto all = [&](auto&... fields) { (visit(fields), ...); };
  all(r.elements, r.zero, r.subnormal, r.inf, r.nan, r.amax, r.amin, r.exponents);
  all(r.nonzero, r.flushed, r.overflowed, r.local_error, r.subnormal_loss, r.saturated, r.bias, r.bias_z, r.ulps,
      r.carried_error);
  all(r.exact_rms, r.fp64_rms, r.range_least, r.range_most, r.range_exponents, r.range_powers, r.cancelled,
      r.most_cancelled);
  all(r.loss_error, r.loss_reach, r.norm_error, r.decisions, r.flipped, r.undecided, r.least_margin, r.margins,
      r.radii);
  all(r.intended, r.stagnant, r.copy_stagnant, r.second_moment_zero, r.epsilon_zero);
}

inline constexpr std::string_view kRecordMagic = "ACTR";
inline constexpr std::uint16_t kRecordVersion = 1;
inline constexpr std::size_t kRecordHeader = 16;
inline constexpr int kMostExponent = 1100;                            ///< beyond what fp64 has, to either side
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  ///< of a tensor: sums over a trace fit into int64
inline constexpr std::size_t kMostCounts = 2 * kMostExponent;

/// Appends a record, header and payload.
void append_record(std::string& out, const TraceRecord& record);
/// The CRC-32 of its payload, as its header has it. `record`: of kRecordHeader bytes at least.
std::uint32_t record_checksum(std::string_view record);
/// Reads a whole record. Error says what of it is not as written: no byte is taken on trust.
TraceRecord read_record(std::string_view record);

/// The binary file beside a trace: its name with ".bin".
std::string statistics_path(const std::string& trace);
/// Whether a trace of that name has its statistics in its lines: a device or a pipe has no file beside it.
bool statistics_inline(const std::string& trace);

}  // namespace ampcheck::checks::train
