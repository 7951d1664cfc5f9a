// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/line_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostLines = 40;  ///< of an op

struct OpLines {
  std::string op;
  std::vector<LineErrors> lines = {};
  bool convicted = false;
  std::vector<std::string> cases = {};  ///< by line: the one in which its numbers are furthest from their shadow
};

void add(OpLines& to, const CaseResult& result) {
  to.convicted |= convicts(result.verdict);
  for (const LineErrors& line : result.lines) {
    std::size_t i = 0;
    while (i < to.lines.size() && (to.lines[i].kernel != line.kernel || to.lines[i].place != line.place)) ++i;
    if (i == to.lines.size()) {
      to.lines.push_back(line);
      to.cases.push_back(result.name);
      continue;
    }
    if (line.carried > to.lines[i].carried) to.cases[i] = result.name;
    to.lines[i].add(line);
  }
}

std::string size_text(double x) { return x == 0 ? "exact" : std::isinf(x) ? "all" : fmt::format("{:.1e}", x); }
std::string ulp_text(double x) { return x == 0 ? "exact" : fmt::format("{:.2f} ulp", x); }

std::string born_text(const LineErrors& line) {
  std::string out;
  const auto say = [&](std::int64_t count, const char* what) {
    if (count > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", grouped(count), what);
  };
  say(line.nans, "NaN");
  say(line.infinities, "infinite");
  say(line.underflows, "to zero");
  say(line.subnormals, "subnormal");
  return out;
}

std::string row_of(const LineErrors& line, int widest) {
  std::string out =
      fmt::format("  {:<{}}  {:>12}  {:>9}  {:>8}  {:>9}  {:>7}", line.place, widest, grouped(line.results),
                  ulp_text(line.local_ulp), size_text(line.local), size_text(line.carried),
                  line.cancelled_bits > 0 ? fmt::format("{} bits", line.cancelled_bits) : "");
  if (const std::string born = born_text(line); !born.empty()) out += "  " + born;
  if (line.lost() > 0)
    out += fmt::format("  takes half of the digits of {} stored number{} ({})", grouped(line.lost()),
                       line.lost() == 1 ? "" : "s", line.lost_words());
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string table_of(const OpLines& op, const Style& style) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < op.lines.size(); ++i) shown.push_back(i);
  if (shown.size() > kMostLines) {
    const auto weighs = [&](std::size_t i) { return std::pair(op.lines[i].lost(), op.lines[i].carried); };
    std::stable_sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) { return weighs(a) > weighs(b); });
    shown.resize(kMostLines);
    std::sort(shown.begin(), shown.end());
  }
  std::size_t widest = 4;
  for (const std::size_t i : shown) widest = std::max(widest, op.lines[i].place.size());
  std::string out = fmt::format("\n  {}{:<{}}  {:>12}  {:>9}  {:>8}  {:>9}  {:>7}  born{}\n", style.bold, "line",
                                widest, "results", "one step", "relative", "together", "cancels", style.reset);
  for (const std::size_t i : shown) out += row_of(op.lines[i], static_cast<int>(widest));
  if (shown.size() < op.lines.size())
    out += fmt::format("  ... and {} more lines (--json)\n", op.lines.size() - shown.size());
  const auto worst = std::max_element(op.lines.begin(), op.lines.end(), [](const LineErrors& a, const LineErrors& b) {
    return std::pair(a.lost(), a.carried) < std::pair(b.lost(), b.carried);
  });
  if (worst->lost() > 0)
    out +=
        fmt::format("  most at {}: '{}'\n", worst->place, op.cases[static_cast<std::size_t>(worst - op.lines.begin())]);
  if (worst->lost() > 0 && !op.convicted)
    out +=
        "  all numbers are right: what cancels to a number near zero, or leaves the range, has few digits in a right "
        "kernel too\n";
  return out;
}

}  // namespace

std::string line_tables(const std::vector<CaseResult>& cases, const Style& style) {
  std::vector<OpLines> ops;
  for (const CaseResult& result : cases) {
    if (result.lines.empty()) continue;
    auto op = std::find_if(ops.begin(), ops.end(), [&](const OpLines& o) { return o.op == result.op; });
    if (op == ops.end()) op = ops.insert(ops.end(), {result.op});
    add(*op, result);
  }
  std::string out;
  for (const OpLines& op : ops) out += table_of(op, style);
  return out;
}

Json lines_json(const std::vector<LineErrors>& lines) {
  Json out = Json::array();
  for (const LineErrors& line : lines)
    out.push_back({{"kernel", line.kernel},
                   {"place", line.place},
                   {"results", line.results},
                   {"local_ulp", json_number(line.local_ulp)},
                   {"local", json_number(line.local)},
                   {"carried_ulp", json_number(line.carried_ulp)},
                   {"carried", json_number(line.carried)},
                   {"cancelled_bits", line.cancelled_bits},
                   {"nans", line.nans},
                   {"infinities", line.infinities},
                   {"underflows", line.underflows},
                   {"subnormals", line.subnormals},
                   {"lost", line.lost()},
                   {"lost_by", line.lost() > 0 ? line.lost_words() : ""}});
  return out;
}

}  // namespace ampcheck::tools
