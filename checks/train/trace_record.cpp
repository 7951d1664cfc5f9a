// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trace_record.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>

#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck::checks::train {

namespace {

bool stands(std::int64_t count) { return count != 0; }
bool stands(double value) { return value != 0; }
bool stands(const std::optional<double>& value) { return value.has_value(); }
bool stands(const std::vector<std::int64_t>& counts) { return !counts.empty(); }
bool stands(const Histogram& h) { return !h.counts.empty(); }

void write(std::string& out, std::int64_t count) { put(out, count); }
void write(std::string& out, double value) { put(out, value); }
void write(std::string& out, const std::optional<double>& value) { put(out, *value); }
/// As many bytes for each as the largest wants.
void write(std::string& out, const std::vector<std::int64_t>& counts) {
  const auto most = static_cast<std::uint64_t>(*std::max_element(counts.begin(), counts.end()));
  const unsigned width = most <= 0xff ? 1 : most <= 0xffff ? 2 : most <= 0xffffffff ? 4 : 8;
  put(out, static_cast<std::uint8_t>(width));
  put(out, static_cast<std::uint16_t>(counts.size()));
  for (const std::int64_t n : counts) {
    char bytes[sizeof n];
    std::memcpy(bytes, &n, sizeof n);
    out.append(bytes, width);
  }
}
void write(std::string& out, const Histogram& h) {
  put(out, static_cast<std::int16_t>(h.first));
  write(out, h.counts);
}

/// Takes numbers off a payload.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  T next() {
    if (rest_.size() < sizeof(T)) throw Error("a record that ends within a number");
    const T out = take<T>(rest_);
    rest_.remove_prefix(sizeof(T));
    return out;
  }
  void read(std::int64_t& count) {
    count = next<std::int64_t>();
    if (count < 0 || count > kMostElements) throw Error("a record with the count " + std::to_string(count));
  }
  void read(double& value) { value = next<double>(); }
  void read(std::optional<double>& value) { value = next<double>(); }
  void read(std::vector<std::int64_t>& counts) {
    const std::size_t width = next<std::uint8_t>(), size = next<std::uint16_t>();
    if (!std::has_single_bit(width) || width > 8 || size > kMostCounts || rest_.size() < width * size)
      throw Error("a record with a list that does not fit");
    counts.resize(size);
    for (std::int64_t& n : counts) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, rest_.data(), width);
      if (bits > static_cast<std::uint64_t>(kMostElements))
        throw Error("a record with the count " + std::to_string(bits));
      n = static_cast<std::int64_t>(bits);
      rest_.remove_prefix(width);
    }
  }
  void read(Histogram& h) {
    h.first = next<std::int16_t>();
    if (std::abs(h.first) > kMostExponent) throw Error("a record with exponent " + std::to_string(h.first));
    read(h.counts);
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace

void append_record(std::string& out, const TraceRecord& record) {
  const std::size_t begin = out.size();
  out.append(kRecordMagic);
  put(out, kRecordVersion);
  put(out, std::uint16_t{0});
  put(out, std::uint64_t{0});  // length and checksum, known below
  std::uint64_t mask = 0, bit = 1;
  each_record_field(record, [&](const auto& field) {
    mask |= stands(field) ? bit : 0;
    bit <<= 1;
  });
  put(out, static_cast<std::int32_t>(record.step));
  put(out, static_cast<std::int32_t>(record.seq));
  put(out, mask);
  each_record_field(record, [&](const auto& field) {
    if (stands(field)) write(out, field);
  });
  const std::string_view payload = std::string_view(out).substr(begin + kRecordHeader);
  const auto length = static_cast<std::uint32_t>(payload.size());
  const std::uint32_t checksum = crc32(payload);
  std::memcpy(out.data() + begin + 8, &length, sizeof length);
  std::memcpy(out.data() + begin + 12, &checksum, sizeof checksum);
}

std::uint32_t record_checksum(std::string_view record) { return take<std::uint32_t>(record.substr(12)); }

TraceRecord read_record(std::string_view bytes) {
  if (bytes.size() < kRecordHeader || !bytes.starts_with(kRecordMagic)) throw Error("no record");
  if (const auto version = take<std::uint16_t>(bytes.substr(4)); version != kRecordVersion)
    throw Error("a record of version " + std::to_string(version));
  const std::string_view payload = bytes.substr(kRecordHeader);
  if (take<std::uint16_t>(bytes.substr(6)) != 0 || take<std::uint32_t>(bytes.substr(8)) != payload.size())
    throw Error("a record of another length");
  if (record_checksum(bytes) != crc32(payload)) throw Error("a record that does not fit its checksum");
  Reader in(payload);
  TraceRecord out;
  out.step = in.next<std::int32_t>();
  out.seq = in.next<std::int32_t>();
  std::uint64_t mask = in.next<std::uint64_t>();
  each_record_field(out, [&](auto& field) {
    if ((mask & 1) != 0) in.read(field);
    mask >>= 1;
  });
  if (mask != 0 || !in.at_end()) throw Error("a record with more than its fields");
  return out;
}

std::string statistics_path(const std::string& trace) { return trace + ".bin"; }

bool statistics_inline(const std::string& trace) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(trace, none);
  const bool names_open_file =
      trace.starts_with("/dev/") && !trace.starts_with("/dev/shm/");  // /dev/stdout: whatever it is now
  return names_open_file || trace.starts_with("/proc/") ||
         (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status));
}

}  // namespace ampcheck::checks::train
