// SPDX-License-Identifier: Apache-2.0
// TOML 1.0 files, read with the place of every key and value, in the order of the file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/error.h"

namespace ampcheck {

/// "[my_op.toml:12:5] what, got X, want Y".
struct TomlError : Error {
  using Error::Error;
};

/// Beyond these is a TomlError: bytes of a file, levels of tables and arrays.
inline constexpr std::size_t kMostTomlBytes = std::size_t{1} << 20;
inline constexpr int kMostTomlDepth = 64;

/// Line and column from 1.
struct TomlPlace {
  int line = 1, column = 1;
};

struct TomlEntry;

struct TomlNode {
  enum class Kind : std::uint8_t { text, integer, number, boolean, date, array, table };
  Kind kind = Kind::table;
  TomlPlace place;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;  ///< of an integer too
  bool boolean = false;
  std::vector<TomlEntry> entries;  ///< of a table by key, of an array without keys
};

struct TomlEntry {
  std::string key;
  TomlPlace place;  ///< of the key
  TomlNode value;
};

class TomlFile {
 public:
  /// Parses; `path` stands in messages. Throws TomlError.
  TomlFile(std::string text, std::string path);

  const TomlNode& root() const { return root_; }
  const std::string& path() const { return path_; }
  /// The text of the line at a place, from its column on.
  std::string_view rest_of_line(TomlPlace place) const;
  /// `below`: lines that follow, such as the place in a formula, as they are.
  [[noreturn]] void fail(TomlPlace place, const std::string& what, const std::string& below = {}) const;

 private:
  std::string text_, path_;
  TomlNode root_;
};

/// One table of a file, whose keys are known: an unknown one is a TomlError that names the nearest.
class TomlSection {
 public:
  /// `what` names the table in messages: "inputs".
  TomlSection(const TomlFile& file, const TomlNode& node, std::string what, std::vector<std::string> keys);

  const TomlNode* find(std::string_view key) const;
  /// Of the key if it is there, else of the table.
  TomlPlace place(std::string_view key = {}) const;
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

  // A value of a key; nothing if the key is not there. TomlError for another kind of value.
  std::optional<std::string> text(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  /// One of these words as its position; nothing if the key is not there.
  std::optional<int> choice(std::string_view key, const std::vector<std::string>& words) const;

 private:
  const TomlFile& file_;
  const TomlNode& node_;
  std::string what_;
};

/// "a string", "an integer", ...
const char* kind_name(TomlNode::Kind kind);

}  // namespace ampcheck
