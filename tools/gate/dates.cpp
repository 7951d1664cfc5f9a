// SPDX-License-Identifier: Apache-2.0
#include "tools/gate/dates.h"

#include <fmt/format.h>

#include <chrono>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const auto year = parse_whole(text.substr(0, 4)), month = parse_whole(text.substr(5, 2)),
             day = parse_whole(text.substr(8, 2));
  if (!year || !month || !day || *year < 0 || *month < 0 || *day < 0) return false;
  return std::chrono::year_month_day(std::chrono::year(static_cast<int>(*year)),
                                     std::chrono::month(static_cast<unsigned>(*month)),
                                     std::chrono::day(static_cast<unsigned>(*day)))
      .ok();
}

std::string today() {
  const std::chrono::year_month_day day(std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()));
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()),
                     static_cast<unsigned>(day.day()));
}

}  // namespace ampcheck::tools
