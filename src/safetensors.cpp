// SPDX-License-Identifier: Apache-2.0
#include "src/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "src/error.h"
#include "src/file_bytes.h"

namespace ampcheck {

namespace {

using nlohmann::json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 53;
constexpr std::size_t kAlignment = 8;  // of the data
constexpr std::string_view kMetadata = "__metadata__";

struct FileDtype {
  const char* name;
  Dtype dtype;
  bool boolean = false;
};
/// The first row of a dtype is the one that is written.
constexpr std::array kDtypes = {FileDtype{"F64", Dtype::fp64},       FileDtype{"F32", Dtype::fp32},
                                FileDtype{"F16", Dtype::fp16},       FileDtype{"BF16", Dtype::bf16},
                                FileDtype{"F8_E4M3", Dtype::e4m3fn}, FileDtype{"F8_E5M2", Dtype::e5m2},
                                FileDtype{"I64", Dtype::i64},        FileDtype{"I32", Dtype::i32},
                                FileDtype{"U8", Dtype::u8},          FileDtype{"BOOL", Dtype::u8, true}};

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error("[safetensors] '" + where + "': " + what);
}

/// What the header says of one tensor.
struct Entry {
  std::string name;
  std::optional<FileDtype> dtype;
  std::optional<Shape> shape;
  std::vector<std::uint64_t> offsets;
};

/// Takes the header event by event, so that no document of it is held. Any event out of place ends the reading.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}

  std::vector<Entry> entries;

  bool start_object(std::size_t) override {
    if (depth_ == 2 || in_array_) bad("got an object inside a tensor's");
    ++depth_;
    fields_.clear();
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) finish();
    --depth_;
    in_metadata_ = false;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (key.size() > kMostTensorName)
        bad("got a name of " + std::to_string(key.size()) + " bytes, want at most " + std::to_string(kMostTensorName));
      if (!names_.insert(key).second) bad("got the name " + quoted_text(key) + " twice");
      if ((in_metadata_ = key == kMetadata)) return true;
      require_tensor_name(key, {}, "[safetensors] '" + where_ + "': ");
      entries.push_back({key, {}, {}, {}});
      return true;
    }
    if (!fields_.insert(key).second) bad("got the key " + quoted_text(key) + " twice");
    field_ = key;
    if (!in_metadata_ && key != "dtype" && key != "shape" && key != "data_offsets")
      bad("got the key " + quoted_text(key) + ", want dtype, shape or data_offsets");
    return true;
  }
  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_ && !in_array_) return true;
    if (depth_ != 2 || in_array_ || field_ != "dtype") bad("got the text " + quoted_text(text) + " out of place");
    const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const FileDtype& d) { return text == d.name; });
    if (found == kDtypes.end())
      bad("got dtype " + quoted_text(text) + ", want F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, U8 or BOOL");
    entries.back().dtype = *found;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_ || (field_ != "shape" && field_ != "data_offsets"))
      bad("got an array out of place");
    if (field_ == "shape") {
      entries.back().shape.emplace();
      count_ = 1;
    }
    return in_array_ = true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) bad("got a number out of place");
    if (field_ == "shape")
      add_extent(value);
    else if (entries.back().offsets.size() == 2)
      bad("got more than two data_offsets");
    else
      entries.back().offsets.push_back(value);
    return true;
  }
  bool number_integer(number_integer_t) override { bad("got a negative number"); }
  bool number_float(number_float_t, const string_t&) override { bad("got a number that is not whole, or too large"); }
  bool boolean(bool) override { bad("got true or false"); }
  bool null() override { bad("got null"); }
  bool binary(json::binary_t&) override { bad("got bytes"); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail(where_, "its header is no JSON, at byte " + std::to_string(position));
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail(where_, what + " in its header" +
                     (entries.empty() ? "" : ", at or before tensor " + quoted_text(entries.back().name)));
  }

  void add_extent(std::uint64_t extent) {
    Shape& shape = *entries.back().shape;
    if (shape.rank == kMaxRank) bad("got more than " + std::to_string(kMaxRank) + " dimensions");
    if (extent > static_cast<std::uint64_t>(kMostElements) ||
        (extent > 0 && count_ > kMostElements / static_cast<std::int64_t>(extent)))
      bad("got a shape of more than 2^53 elements");
    count_ *= extent > 0 ? static_cast<std::int64_t>(extent) : 1;
    shape.extent[shape.rank++] = static_cast<std::int64_t>(extent);
  }

  void finish() const {
    const Entry& entry = entries.back();
    if (!entry.dtype || !entry.shape || entry.offsets.size() != 2) bad("want dtype, shape and two data_offsets");
  }

  const std::string& where_;
  std::set<std::string> names_, fields_;
  std::string field_;
  int depth_ = 0;
  std::int64_t count_ = 1;
  bool in_metadata_ = false, in_array_ = false;
};

/// Each tensor begins where the one before it ends, the first at 0, and the last ends with the file.
void require_contiguous(std::vector<Entry>& entries, std::size_t data_size, const std::string& where) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    const std::string tensor = "tensor " + quoted_text(entry.name);
    const std::uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin != at || end < begin)
      fail(where, tensor + ", got data_offsets [" + std::to_string(begin) + "," + std::to_string(end) +
                      "], want them to begin at " + std::to_string(at));
    const auto want =
        static_cast<std::uint64_t>(entry.shape->count()) * static_cast<std::uint64_t>(bytes(entry.dtype->dtype));
    if (end - begin != want)
      fail(where, tensor + ", got " + std::to_string(end - begin) + " bytes of data, want " + std::to_string(want) +
                      " for " + entry.dtype->name + entry.shape->str());
    at = end;
  }
  if (at != data_size)
    fail(where,
         "got " + std::to_string(data_size) + " bytes of data, want " + std::to_string(at) + " as its header says");
}

}  // namespace

namespace {

/// Control characters of C0 and C1, and of UTF-8 those that turn the direction of writing.
bool has_controls(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(i + k < text.size() ? text[i + k] : '\0'); };
    const unsigned char c = at(0);
    const bool c1 = c == 0xc2 && at(1) >= 0x80 && at(1) < 0xa0,
               turns = c == 0xe2 && ((at(1) == 0x80 && at(2) >= 0xa8 && at(2) <= 0xae) ||
                                     (at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9));
    if (c < 0x20 || c == 0x7f || c1 || turns) return true;
  }
  return false;
}

}  // namespace

void require_tensor_name(const std::string& name, std::span<const NamedTensor> before, const std::string& where) {
  if (name.empty() || name.size() > kMostTensorName)
    throw Error(where + "got a name of " + std::to_string(name.size()) + " bytes, want 1 to " +
                std::to_string(kMostTensorName));
  if (has_controls(name)) throw Error(where + "got a control character in the name " + quoted_text(name));
  if (std::any_of(before.begin(), before.end(), [&](const NamedTensor& t) { return t.name == name; }))
    throw Error(where + "got the name " + quoted_text(name) + " twice");
}

std::vector<NamedTensor> parse_safetensors(std::string_view bytes, const std::string& where) {
  if (bytes.size() < 8)
    fail(where, "got " + std::to_string(bytes.size()) + " bytes, want at least the 8 of the header's length");
  const auto size = take<std::uint64_t>(bytes);
  if (size > kMostSafetensorsHeader)
    fail(where, "got a header of " + std::to_string(size) + " bytes, want at most " +
                    std::to_string(kMostSafetensorsHeader) + " (is it a safetensors file?)");
  if (size > bytes.size() - 8)
    fail(where, "got a header of " + std::to_string(size) + " bytes in a file of " + std::to_string(bytes.size()));
  const std::string_view header = bytes.substr(8, size), data = bytes.substr(8 + size);
  if (!header.starts_with('{')) fail(where, "want '{' at the start of its header");
  HeaderReader reader(where);
  if (!json::sax_parse(header.begin(), header.end(), &reader)) fail(where, "its header is no JSON");
  require_contiguous(reader.entries, data.size(), where);
  std::vector<NamedTensor> out;
  for (const Entry& entry : reader.entries) {
    const std::string_view from = data.substr(entry.offsets[0], entry.offsets[1] - entry.offsets[0]);
    if (entry.dtype->boolean && std::any_of(from.begin(), from.end(), [](char c) { return c != 0 && c != 1; }))
      fail(where, "tensor " + quoted_text(entry.name) + ", got a boolean other than 0 and 1");
    out.push_back({entry.name, Tensor::uninitialized(entry.dtype->dtype, *entry.shape)});
    if (!from.empty()) std::memcpy(out.back().tensor.data(), from.data(), from.size());
  }
  return out;
}

std::string safetensors_bytes(std::span<const NamedTensor> tensors) {
  std::string header = "{", data;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    const Tensor& tensor = tensors[i].tensor;
    require_tensor_name(name, tensors.first(i), "[safetensors] ");
    if (name == kMetadata) throw Error("[safetensors] got a tensor named '__metadata__', want another name");
    const auto found =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const FileDtype& d) { return d.dtype == tensor.dtype(); });
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(tensor.data()),
                static_cast<std::size_t>(tensor.count()) * static_cast<std::size_t>(bytes(tensor.dtype())));
    header += (i == 0 ? "" : ",") + json(name).dump() + ":{\"dtype\":\"" + found->name +
              "\",\"shape\":" + tensor.shape().str() + ",\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += '}';
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  std::string out;
  put(out, static_cast<std::uint64_t>(header.size()));
  return out + header + data;
}

}  // namespace ampcheck
