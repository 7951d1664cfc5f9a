// SPDX-License-Identifier: Apache-2.0
// Lines of a console log: colours, progress bars that overwrite themselves, prefixes of ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "checks/scaler/log.h"

namespace ampcheck::checks::scaler {

/// The number that text begins with, after blanks, quotes and brackets: "  65536.0", "'nan'", "[1e-5, 1e-5]". None if
/// it begins with something else.
std::optional<double> leading_number(std::string_view text);

/// Without escape sequences of a terminal; `held` keeps the text where there were any.
std::string_view without_escapes(std::string_view text, std::string& held);

/// The rank that a launcher put before a line: "[rank3]:", "[default3]:", "3: ". None without one.
std::optional<int> prefixed_rank(std::string_view line);

/// What the first grammar that knows a line finds in it; `torn`: a line of that kind which lacks what each has.
/// `likely`: tried first.
std::optional<Found> find_in_line(std::string_view line, int likely, bool& torn);

/// Names columns: of a CSV's header, or of a JSON object.
class Columns {
 public:
  explicit Columns(const ColumnNames& own) : own_(own) {}
  /// Names are few, and asked for on every line: each is looked up once.
  std::optional<Quantity> of(std::string_view name);

 private:
  std::optional<Quantity> look_up(std::string_view name) const;
  ColumnNames own_;
  std::map<std::string, std::optional<Quantity>, std::less<>> known_;
};

}  // namespace ampcheck::checks::scaler
