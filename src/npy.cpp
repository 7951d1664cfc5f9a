// SPDX-License-Identifier: Apache-2.0
#include "src/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kAlignment = 64;  // of the data, by the format's rule
constexpr std::int64_t kExact = std::int64_t{1} << 53, kMostElements = kExact;

/// NumPy's name of a dtype; the first row of a dtype is the one that is written.
struct Descr {
  const char* name;
  Dtype dtype;
  bool boolean = false;
};
constexpr std::array kDescrs = {Descr{"<f8", Dtype::fp64},    Descr{"<f4", Dtype::fp32}, Descr{"<f2", Dtype::fp16},
                                Descr{"<i8", Dtype::i64},     Descr{"<i4", Dtype::i32},  Descr{"|u1", Dtype::u8},
                                Descr{"|b1", Dtype::u8, true}};

/// Null where NumPy has no such type.
const char* descr_of(Dtype dtype) {
  for (const Descr& descr : kDescrs)
    if (descr.dtype == dtype) return descr.name;
  return nullptr;
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error("[npy] '" + where + "': " + what);
}

/// Reads the header's Python dictionary: three known keys, in any order.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader read() {
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
    NpyHeader out{.dtype = descr_->dtype, .boolean = descr_->boolean, .fortran_order = *order_, .shape = *shape_};
    out.data_size = static_cast<std::size_t>(out.shape.count()) * static_cast<std::size_t>(bytes(out.dtype));
    return out;
  }

 private:
  void read_item() {
    const std::string key = quoted();
    expect(':');
    if (key == "descr") {
      once(descr_, key);
      descr_ = descr_named(quoted());
    } else if (key == "fortran_order") {
      once(order_, key);
      order_ = boolean();
    } else if (key == "shape") {
      once(shape_, key);
      shape_ = shape();
    } else
      fail(where_, "got key " + quoted_text(key) + " in the header, want 'descr', 'fortran_order' or 'shape'");
  }

  template <class T>
  void once(const std::optional<T>& known, const std::string& key) const {
    if (known) fail(where_, "got key '" + key + "' a second time in the header");
  }

  Descr descr_named(const std::string& name) const {
    std::string list;
    for (const Descr& descr : kDescrs) {
      if (name == descr.name) return descr;
      list += (list.empty() ? "'" : ", '") + std::string(descr.name) + "'";
    }
    fail(where_,
         "got descr " + quoted_text(name) + ", want one of " + list +
             (name.starts_with('>') ? " (little-endian)" : "") +
             (name == "|V2" || name == "<V2" ? "; NumPy has no bf16: save it as safetensors, or as float32" : ""));
  }

  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"False", false}, {"True", true}})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    fail(where_, "want fortran_order True or False");
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
      if (extent > 0 && count > kMostElements / extent) fail(where_, "got a shape of more than 2^53 elements");
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
  std::optional<Descr> descr_;
  std::optional<bool> order_;
  std::optional<Shape> shape_;
};

void put_value(std::string& out, Dtype dtype, double value) {
  const bool exact =
      dtype == Dtype::fp64 || std::isnan(value) ||
      (dtype == Dtype::fp32 ? static_cast<double>(static_cast<float>(value)) == value
                            : value == std::nearbyint(value) && std::fabs(value) <= static_cast<double>(kExact));
  if (!exact) throw Error("[npy] got " + std::to_string(value) + ", want a value that is exact as " + descr_of(dtype));
  if (dtype == Dtype::fp64)
    put(out, value);
  else if (dtype == Dtype::fp32)
    put(out, static_cast<float>(value));
  else
    put(out, static_cast<std::int64_t>(value));
}

/// Magic, version 1.0, length and text of the header, padded so that the data is aligned.
std::string head_bytes(Dtype dtype, const Shape& shape) {
  std::string header = std::string("{'descr': '") + descr_of(dtype) + "', 'fortran_order': False, 'shape': (";
  for (int axis = 0; axis < shape.rank; ++axis)
    header += std::to_string(shape[axis]) + (axis + 1 < shape.rank ? ", " : shape.rank == 1 ? "," : "");
  header += "), }";
  std::string out(kMagic);
  out += std::string_view("\x01\x00", 2);
  header.append(kAlignment - 1 - (out.size() + 2 + header.size()) % kAlignment, ' ');
  header += '\n';
  put(out, static_cast<std::uint16_t>(header.size()));
  return out + header;
}

/// Copies elements that lie in Fortran order into C order.
void from_fortran_order(const Shape& shape, std::size_t width, std::string_view data, std::byte* to) {
  std::int64_t index[kMaxRank] = {};
  for (std::int64_t at = 0; at < shape.count(); ++at) {
    std::int64_t from = 0;
    for (int axis = shape.rank - 1; axis >= 0; --axis) from = from * shape[axis] + index[axis];
    std::memcpy(to + static_cast<std::size_t>(at) * width, data.data() + static_cast<std::size_t>(from) * width, width);
    for (int axis = shape.rank - 1; axis >= 0 && ++index[axis] == shape[axis]; --axis) index[axis] = 0;
  }
}

}  // namespace

Dtype npy_dtype(Dtype dtype) {
  if (dtype == Dtype::fp64) return Dtype::fp64;
  return is_float(dtype) ? Dtype::fp32 : Dtype::i64;
}

std::string npy_bytes(const NpyArray& array) {
  if (array.shape.count() != static_cast<std::int64_t>(array.values.size()))
    throw Error("[npy] got " + std::to_string(array.values.size()) + " values, want " +
                std::to_string(array.shape.count()) + " for shape " + array.shape.str());
  const Dtype dtype = npy_dtype(array.dtype);
  std::string out = head_bytes(dtype, array.shape);
  out.reserve(out.size() + array.values.size() * 8);
  for (const double value : array.values) put_value(out, dtype, value);
  return out;
}

std::string npy_bytes(const Tensor& tensor) {
  if (descr_of(tensor.dtype()) == nullptr)
    return npy_bytes({tensor.dtype(), tensor.shape(), to_doubles(tensor.view())});
  std::string out = head_bytes(tensor.dtype(), tensor.shape());
  out.append(static_cast<const char*>(tensor.data()),
             static_cast<std::size_t>(tensor.count()) * static_cast<std::size_t>(bytes(tensor.dtype())));
  return out;
}

NpyHeader parse_npy_header(std::string_view bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() + 2 || !bytes.starts_with(kMagic)) fail(where, "is no .npy file");
  const int major = static_cast<unsigned char>(bytes[6]), minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0)
    fail(where, "got version " + std::to_string(major) + "." + std::to_string(minor) + ", want 1.0, 2.0 or 3.0");
  const std::size_t width = major == 1 ? 2 : 4, before = kMagic.size() + 2 + width;
  if (bytes.size() < before) fail(where, "ends inside its header");
  const std::size_t size = major == 1 ? take<std::uint16_t>(bytes.substr(8)) : take<std::uint32_t>(bytes.substr(8));
  if (size > kMostNpyHeader)
    fail(where, "got a header of " + std::to_string(size) + " bytes, want at most " + std::to_string(kMostNpyHeader));
  if (bytes.size() < before + size) fail(where, "ends inside its header");
  NpyHeader out = HeaderReader(bytes.substr(before, size), where).read();
  out.data_at = before + size;
  return out;
}

Tensor parse_npy_tensor(std::string_view bytes, const std::string& where) {
  const NpyHeader header = parse_npy_header(bytes, where);
  const std::string_view data = bytes.substr(header.data_at);
  if (data.size() != header.data_size)
    fail(where, "got " + std::to_string(data.size()) + " bytes of data, want " + std::to_string(header.data_size) +
                    " for shape " + header.shape.str());
  if (header.boolean && std::any_of(data.begin(), data.end(), [](char c) { return c != 0 && c != 1; }))
    fail(where, "got a boolean other than 0 and 1");
  const Tensor out = Tensor::uninitialized(header.dtype, header.shape);
  if (header.fortran_order)
    from_fortran_order(header.shape, static_cast<std::size_t>(ampcheck::bytes(header.dtype)), data,
                       static_cast<std::byte*>(out.data()));
  else if (!data.empty())
    std::memcpy(out.data(), data.data(), data.size());
  return out;
}

NpyArray parse_npy(std::string_view bytes, const std::string& where) {
  const Tensor tensor = parse_npy_tensor(bytes, where);
  if (tensor.dtype() == Dtype::i64)
    for (const std::int64_t value : tensor.span<std::int64_t>())
      if (value > kExact || value < -kExact)
        fail(where, "got the integer " + std::to_string(value) + ", want at most 2^53 in size");
  return {tensor.dtype(), tensor.shape(), to_doubles(tensor.view())};
}

NpyArray read_npy(const std::string& path) { return parse_npy(read_bytes(path, "npy"), path); }

}  // namespace ampcheck
