// SPDX-License-Identifier: Apache-2.0
#include "src/toml_file.h"

#include <stdexcept>
#include <string>

// The parser asserts what malformed text can break, and in a release build takes it for granted: here it refuses instead.
namespace {
constexpr void toml_expects(bool holds, const char* what) {
  if (!holds) throw std::logic_error(std::string("the TOML parser expected ") + what);
}
}  // namespace
#undef NDEBUG
#define TOML_ASSERT(expr) toml_expects(static_cast<bool>(expr), #expr)
#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

#include <algorithm>

#include "src/op_call.h"

namespace ampcheck {

namespace {

static_assert(TOML_MAX_NESTED_VALUES == kMostTomlDepth);

TomlPlace place_of(const toml::source_region& region) {
  return {std::max(1, static_cast<int>(region.begin.line)), std::max(1, static_cast<int>(region.begin.column))};
}

class Converter {
 public:
  explicit Converter(const TomlFile& file) : file_(file) {}

  // Dotted keys and headers nest tables beyond the parser's own count.
  TomlNode node(const toml::node& from, int depth) const {
    TomlNode out;
    out.place = place_of(from.source());
    if (depth > kMostTomlDepth) file_.fail(out.place, "got tables nested deeper than " + std::to_string(kMostTomlDepth));
    if (const auto* text = from.as_string()) out.kind = TomlNode::Kind::text, out.text = text->get();
    else if (const auto* integer = from.as_integer()) out.kind = TomlNode::Kind::integer, out.integer = integer->get(), out.number = static_cast<double>(out.integer);
    else if (const auto* number = from.as_floating_point()) out.kind = TomlNode::Kind::number, out.number = number->get();
    else if (const auto* boolean = from.as_boolean()) out.kind = TomlNode::Kind::boolean, out.boolean = boolean->get();
    else if (const auto* array = from.as_array()) {
      out.kind = TomlNode::Kind::array;
      for (const toml::node& item : *array) out.entries.push_back({"", place_of(item.source()), node(item, depth + 1)});
    } else if (const auto* table = from.as_table()) {
      for (const auto& [key, value] : *table) out.entries.push_back({std::string(key.str()), place_of(key.source()), node(value, depth + 1)});
      std::stable_sort(out.entries.begin(), out.entries.end(), [](const TomlEntry& a, const TomlEntry& b) {
        return a.place.line != b.place.line ? a.place.line < b.place.line : a.place.column < b.place.column;
      });
    } else {
      out.kind = TomlNode::Kind::date;
    }
    return out;
  }

 private:
  const TomlFile& file_;
};

}  // namespace

const char* kind_name(TomlNode::Kind kind) {
  switch (kind) {
    case TomlNode::Kind::text: return "a string";
    case TomlNode::Kind::integer: return "an integer";
    case TomlNode::Kind::number: return "a number";
    case TomlNode::Kind::boolean: return "a boolean";
    case TomlNode::Kind::date: return "a date";
    case TomlNode::Kind::array: return "an array";
    case TomlNode::Kind::table: return "a table";
  }
  return "";
}

TomlFile::TomlFile(std::string text, std::string path) : text_(std::move(text)), path_(std::move(path)) {
  if (text_.size() > kMostTomlBytes) fail({}, "got a file of " + std::to_string(text_.size()) + " bytes, want at most " + std::to_string(kMostTomlBytes));
  try {
    const toml::table parsed = toml::parse(std::string_view(text_));
    root_ = Converter(*this).node(parsed, 0);
  } catch (const toml::parse_error& error) {
    fail(place_of(error.source()), "got no TOML: " + std::string(error.description()));
  } catch (const std::logic_error& error) {
    fail({}, std::string("got no TOML: ") + error.what());
  }
}

std::string_view TomlFile::rest_of_line(TomlPlace place) const {
  std::size_t at = 0;
  for (int line = 1; line < place.line && at < text_.size(); ++line) at = std::min(text_.find('\n', at), text_.size() - 1) + 1;
  const std::size_t end = std::min(text_.find('\n', at), text_.size());
  for (int column = 1; column < place.column && at < end; ++column)  // columns count characters, not bytes
    do ++at;
    while (at < end && (static_cast<unsigned char>(text_[at]) & 0xc0) == 0x80);
  return std::string_view(text_).substr(at, end - at);
}

void TomlFile::fail(TomlPlace place, const std::string& what) const {
  throw TomlError("[" + path_ + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + "] " + what);
}

TomlSection::TomlSection(const TomlFile& file, const TomlNode& node, std::string what, std::vector<std::string> keys)
    : file_(file), node_(node), what_(std::move(what)) {
  if (node.kind != TomlNode::Kind::table) file.fail(node.place, what_ + ", got " + kind_name(node.kind) + ", want a table");
  for (const TomlEntry& entry : node.entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end()) continue;
    const std::string near = nearest_word(entry.key, keys);
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + key;
    file.fail(entry.place, what_ + ", got unknown key '" + entry.key + "'" + (near.empty() ? "" : ", did you mean '" + near + "'?") + ", want one of " + list);
  }
}

const TomlNode* TomlSection::find(std::string_view key) const {
  for (const TomlEntry& entry : node_.entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

TomlPlace TomlSection::place(std::string_view key) const {
  for (const TomlEntry& entry : node_.entries)
    if (entry.key == key) return entry.place;
  return node_.place;
}

void TomlSection::fail(std::string_view key, const std::string& what) const {
  const TomlNode* const node = find(key);
  file_.fail(node == nullptr ? node_.place : node->place, std::string(key) + ", " + what);
}

namespace {

const TomlNode* of_kind(const TomlSection& section, std::string_view key, std::initializer_list<TomlNode::Kind> kinds, const char* want) {
  const TomlNode* const node = section.find(key);
  if (node != nullptr && std::find(kinds.begin(), kinds.end(), node->kind) == kinds.end())
    section.fail(key, std::string("got ") + kind_name(node->kind) + ", want " + want);
  return node;
}

}  // namespace

std::optional<std::string> TomlSection::text(std::string_view key) const {
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::text}, "a string");
  if (node == nullptr) return std::nullopt;
  if (node->text.find('\0') != std::string::npos) fail(key, "got a string with a NUL in it");
  return node->text;
}

std::optional<double> TomlSection::number(std::string_view key) const {
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::number, TomlNode::Kind::integer}, "a number");
  return node == nullptr ? std::nullopt : std::optional(node->number);
}

std::optional<std::int64_t> TomlSection::integer(std::string_view key) const {
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::integer}, "an integer");
  return node == nullptr ? std::nullopt : std::optional(node->integer);
}

bool TomlSection::flag(std::string_view key) const {
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::boolean}, "true or false");
  return node != nullptr && node->boolean;
}

std::vector<std::string> TomlSection::texts(std::string_view key) const {
  std::vector<std::string> out;
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::array}, "an array of strings");
  if (node == nullptr) return out;
  for (const TomlEntry& entry : node->entries) {
    if (entry.value.kind != TomlNode::Kind::text) file_.fail(entry.value.place, std::string(key) + ", got " + kind_name(entry.value.kind) + ", want a string");
    if (entry.value.text.find('\0') != std::string::npos) file_.fail(entry.value.place, std::string(key) + ", got a string with a NUL in it");
    out.push_back(entry.value.text);
  }
  return out;
}

std::vector<double> TomlSection::numbers(std::string_view key) const {
  std::vector<double> out;
  const TomlNode* const node = of_kind(*this, key, {TomlNode::Kind::array}, "an array of numbers");
  if (node == nullptr) return out;
  for (const TomlEntry& entry : node->entries) {
    if (entry.value.kind != TomlNode::Kind::number && entry.value.kind != TomlNode::Kind::integer)
      file_.fail(entry.value.place, std::string(key) + ", got " + kind_name(entry.value.kind) + ", want a number");
    out.push_back(entry.value.number);
  }
  return out;
}

std::optional<int> TomlSection::choice(std::string_view key, const std::vector<std::string>& words) const {
  const std::optional<std::string> word = text(key);
  if (!word) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *word);
  if (found != words.end()) return static_cast<int>(found - words.begin());
  const std::string near = nearest_word(*word, words);
  std::string list;
  for (const std::string& known : words) list += (list.empty() ? "" : ", ") + known;
  fail(key, "got '" + *word + "'" + (near.empty() ? "" : ", did you mean '" + near + "'?") + ", want " + list);
}

}  // namespace ampcheck
