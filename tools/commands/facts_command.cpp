// SPDX-License-Identifier: Apache-2.0
// `ampcheck facts`: what is said about mixed precision, measured.
#include <fmt/format.h>

#include <algorithm>

#include "checks/models/real_data.h"
#include "checks/train/facts.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

constexpr std::size_t kColumns = 116;
constexpr std::int64_t kTimesMiddle = 512;  ///< `--times`: eight extents either way

/// Words of `text` in lines of at most kColumns, each after the first indented.
std::string wrapped(const std::string& first, const std::string& text) {
  std::string out, line = first;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    const std::string word = text.substr(start, end - start);
    if (line.size() + word.size() + 1 > kColumns) {
      out += line + "\n";
      line = std::string(first.size(), ' ');
    }
    line += (line.size() == first.size() ? "" : " ") + word;
    start = end + 1;
  }
  return out + line + "\n";
}

/// Times of products, and per multiplication against that of kTimesMiddle.
std::string times_table(const std::vector<ProductTime>& times) {
  const ProductTime& base =
      *std::find_if(times.begin(), times.end(), [](const ProductTime& t) { return t.n == kTimesMiddle; });
  const Style style = stdout_style();
  std::string out = fmt::format(
      "y = x weight^T on the CPU, x [{}, n], weight [n, n]; the fastest of {}; share: per multiplication, of n = "
      "{}\n\n  {}{:>5}{:>18}{:>12}{:>8}{:>12}{:>8}{}\n",
      kProductRows, kProductRounds, kTimesMiddle, style.bold, "n", "multiple of 8", "fp16", "share", "fp32", "share",
      style.reset);
  const auto cells = [](double seconds, const ProductTime& t, double of, const ProductTime& middle) {
    const double share =
        seconds / static_cast<double>(t.multiplications()) / (of / static_cast<double>(middle.multiplications()));
    return fmt::format("{:>12}{:>8.2f}", fmt::format("{:.3g} ms", 1e3 * seconds), share);
  };
  for (const ProductTime& t : times)
    out += fmt::format("  {:>5}{:>18}{}{}\n", t.n, t.n % 8 == 0 ? "yes" : "no", cells(t.fp16, t, base.fp16, base),
                       cells(t.fp32, t, base.fp32, base));
  return out;
}

ExitCode show_times(bool json) {
  const std::vector<ProductTime> times = product_times(kTimesMiddle - 8, kTimesMiddle + 8);
  if (!json) {
    write_stdout(times_table(times));
    return ExitCode::passed;
  }
  Json out = {{"schema", "ampcheck.facts/1"}, {"times", Json::array()}};
  for (const ProductTime& t : times)
    out["times"].push_back({{"n", t.n}, {"rows", kProductRows}, {"fp16_seconds", t.fp16}, {"fp32_seconds", t.fp32}});
  write_stdout(json_text(out));
  return ExitCode::passed;
}

}  // namespace

ExitCode facts_command(const FactsOptions& options) {
  if (options.times) return show_times(options.json);
  const std::vector<Fact> facts = measured_facts(checks::models::find_data(options.data));
  if (options.json) {
    Json out = {{"schema", "ampcheck.facts/1"}, {"facts", Json::array()}};
    for (const Fact& f : facts)
      out["facts"].push_back({{"claim", f.claim},
                              {"holds", f.known ? Json(f.holds) : Json()},
                              {"measured", f.measured},
                              {"command", f.command}});
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  const Style style = stdout_style();
  std::string out;
  for (const Fact& f : facts)
    out += fmt::format("{}{}{}\"{}\"{}\n",
                       !f.known  ? ""
                       : f.holds ? style.green
                                 : style.red,
                       !f.known  ? "open   "
                       : f.holds ? "holds  "
                                 : "wrong  ",
                       style.bold, f.claim, style.reset) +
           wrapped("       ", f.measured) + "       see    " + f.command + "\n";
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
