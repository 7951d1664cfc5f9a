// SPDX-License-Identifier: Apache-2.0
#include "src/npy.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "src/error.h"

namespace ampcheck {

static_assert(std::endian::native == std::endian::little, "npy files are written as memory stands");

namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr std::size_t kAlignment = 64;  // of the data, by the format's rule
constexpr std::int64_t kExact = std::int64_t{1} << 53;

const char* descr_of(Dtype dtype) { return dtype == Dtype::fp64 ? "<f8" : dtype == Dtype::fp32 ? "<f4" : "<i8"; }

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

template <class T>
T take(std::string_view bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

[[noreturn]] void fail(const std::string& where, const std::string& what) { throw Error("[npy] '" + where + "': " + what); }

void put_value(std::string& out, Dtype dtype, double value) {
  const bool exact = dtype == Dtype::fp64 || std::isnan(value) ||
                     (dtype == Dtype::fp32 ? static_cast<double>(static_cast<float>(value)) == value
                                           : value == std::nearbyint(value) && std::fabs(value) <= static_cast<double>(kExact));
  if (!exact) throw Error("[npy] got " + std::to_string(value) + ", want a value that is exact as " + descr_of(dtype));
  if (dtype == Dtype::fp64) put(out, value);
  else if (dtype == Dtype::fp32) put(out, static_cast<float>(value));
  else put(out, static_cast<std::int64_t>(value));
}

/// Reads the header's Python dictionary: three known keys, in any order.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyArray read() {
    expect('{');
    while (!accept('}')) {
      read_item();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!text_.empty()) fail(where_, "got text behind the header's dictionary");
    if (!descr_ || !order_ || !shape_) fail(where_, "want 'descr', 'fortran_order' and 'shape' in the header");
    return {*descr_, *shape_, {}};
  }

 private:
  void read_item() {
    const std::string key = quoted();
    expect(':');
    if (key == "descr") descr_ = dtype_of(quoted());
    else if (key == "fortran_order") order_ = c_order();
    else if (key == "shape") shape_ = shape();
    else fail(where_, "got key '" + key + "' in the header, want 'descr', 'fortran_order' or 'shape'");
  }

  Dtype dtype_of(const std::string& descr) {
    for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::i64})
      if (descr == descr_of(dtype)) return dtype;
    fail(where_, "got descr '" + descr + "', want '<f8', '<f4' or '<i8'");
  }

  bool c_order() {
    skip_blanks();
    if (!text_.starts_with("False")) fail(where_, "want fortran_order False");
    text_.remove_prefix(5);
    return true;
  }

  Shape shape() {
    Shape out;
    std::int64_t count = 1;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      std::int64_t extent = 0;
      const auto end = std::from_chars(text_.data(), text_.data() + text_.size(), extent);
      if (end.ec != std::errc{} || extent < 0) fail(where_, "want whole numbers in the shape");
      if (out.rank == kMaxRank) fail(where_, "got more than " + std::to_string(kMaxRank) + " dimensions");
      if (extent > 0 && count > kExact / extent) fail(where_, "got a shape of more than 2^53 elements");
      count *= extent > 0 ? extent : 1;
      out.extent[out.rank++] = extent;
      text_.remove_prefix(static_cast<std::size_t>(end.ptr - text_.data()));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string quoted() {
    skip_blanks();
    const char quote = text_.empty() ? '\0' : text_.front();
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) fail(where_, "want a quoted word in the header");
    std::string out(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return out;
  }

  void skip_blanks() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_blanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(where_, std::string("want '") + c + "' in the header");
  }

  std::string_view text_;
  const std::string& where_;
  std::optional<Dtype> descr_;
  std::optional<bool> order_;
  std::optional<Shape> shape_;
};

double value_at(std::string_view data, Dtype dtype, std::size_t index, const std::string& where) {
  if (dtype == Dtype::fp64) return take<double>(data, index);
  if (dtype == Dtype::fp32) return take<float>(data, index);
  const auto value = take<std::int64_t>(data, index);
  if (value > kExact || value < -kExact) fail(where, "got the integer " + std::to_string(value) + ", want at most 2^53 in size");
  return static_cast<double>(value);
}

}  // namespace

Dtype npy_dtype(Dtype dtype) {
  if (dtype == Dtype::fp64) return Dtype::fp64;
  return is_float(dtype) ? Dtype::fp32 : Dtype::i64;
}

std::string npy_bytes(const NpyArray& array) {
  if (array.shape.count() != static_cast<std::int64_t>(array.values.size()))
    throw Error("[npy] got " + std::to_string(array.values.size()) + " values, want " + std::to_string(array.shape.count()) +
                " for shape " + array.shape.str());
  const Dtype dtype = npy_dtype(array.dtype);
  std::string header = std::string("{'descr': '") + descr_of(dtype) + "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < array.shape.rank; ++axis)
    header += std::to_string(array.shape[axis]) + (axis + 1 < array.shape.rank ? ", " : array.shape.rank == 1 ? "," : "");
  header += "), }";
  const std::size_t before = kMagic.size() + 2;
  header.append(kAlignment - 1 - (before + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string out(kMagic);
  put(out, static_cast<std::uint16_t>(header.size()));
  out += header;
  out.reserve(out.size() + array.values.size() * 8);
  for (const double value : array.values) put_value(out, dtype, value);
  return out;
}

NpyArray parse_npy(std::string_view bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() + 2 || bytes.substr(0, 6) != kMagic.substr(0, 6)) fail(where, "is no .npy file");
  if (bytes.substr(0, kMagic.size()) != kMagic) fail(where, "want version 1.0");
  const std::size_t header = take<std::uint16_t>(bytes.substr(kMagic.size()), 0);
  bytes.remove_prefix(kMagic.size() + 2);
  if (bytes.size() < header) fail(where, "ends inside its header");
  NpyArray out = HeaderReader(bytes.substr(0, header), where).read();
  bytes.remove_prefix(header);
  const auto count = static_cast<std::size_t>(out.shape.count());
  const std::size_t width = out.dtype == Dtype::fp32 ? 4 : 8;
  if (bytes.size() % width != 0 || bytes.size() / width != count)
    fail(where, "got " + std::to_string(bytes.size()) + " bytes of data, want " + std::to_string(count) + " elements of " +
                    std::to_string(width));
  out.values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.values.push_back(value_at(bytes, out.dtype, i, where));
  return out;
}

NpyArray read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("[npy] cannot open '" + path + "'");
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) throw Error("[npy] cannot read '" + path + "'");
  return parse_npy(bytes, path);
}

}  // namespace ampcheck
