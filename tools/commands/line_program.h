// SPDX-License-Identifier: Apache-2.0
// A program that reads lines of JSON and answers each with a line of JSON.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "tools/report/json.h"

namespace ampcheck::tools {

/// A number, a truth value, null (NaN), or a number as text: "nan", "inf". Throws Error for anything else.
double number_of(const Json& j);

class LineProgram {
 public:
  /// Starts `command` in a shell and says hello. `where` begins messages: "audit scaler"; `page` of the manual says
  /// more. UsageError if it does not answer, or not as is wanted.
  LineProgram(std::string where, std::string command, std::string page);
  ~LineProgram();
  LineProgram(const LineProgram&) = delete;
  LineProgram& operator=(const LineProgram&) = delete;

  /// Its answer to one line. UsageError if there is none within a minute, or it is no JSON.
  Json answer(const Json& request);
  /// What its answer to hello says that it can do.
  bool has(const std::string& ability) const { return has_.contains(ability); }
  const std::set<std::string>& abilities() const { return has_; }
  /// UsageError: it wants to answer with `wanted`.
  [[noreturn]] void fail(const std::string& wanted) const;

 private:
  void start();
  void greet();
  void stop() const;
  [[noreturn]] void ended() const;

  std::string where_, command_, page_, held_;
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
  std::set<std::string> has_;
};

}  // namespace ampcheck::tools
