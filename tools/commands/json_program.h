// SPDX-License-Identifier: Apache-2.0
// A program of the user that answers each line of JSON with a line of JSON.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "tools/report/json.h"

namespace ampcheck::tools {

class JsonProgram {
 public:
  /// Starts `command` in a shell. `verb` ("audit scaler") and `page` of the manual stand in messages.
  JsonProgram(std::string command, std::string verb, std::string page);
  ~JsonProgram();
  JsonProgram(const JsonProgram&) = delete;
  JsonProgram& operator=(const JsonProgram&) = delete;

  /// UsageError if it ends, is silent for a minute, or answers with something else.
  Json answer(const Json& request);
  /// What it says that it has, to the first line.
  std::set<std::string> abilities();
  /// Asks, and hands each of `replies` to `read` until that is false. `wanted`: what an answer looks like, for a
  /// message.
  void replies(const Json& request, const std::string& wanted, const std::function<bool(const Json&)>& read);
  /// UsageError that says what the program wants to answer with.
  [[noreturn]] void fail(const std::string& wanted) const;

 private:
  void start();
  [[noreturn]] void ended() const;

  std::string command_, verb_, page_, held_;
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
};

/// The words of a reply that refuses; nothing where it does not.
std::optional<std::string> refusal_of(const Json& reply);

/// A number as such a program may write it: true is 1, null is NaN, a text as "inf" or "0x1p3" is read. Error
/// otherwise.
double number_of(const Json& j);

}  // namespace ampcheck::tools
