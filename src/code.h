// SPDX-License-Identifier: Apache-2.0
// Verdicts, and the stable codes of findings with their texts.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string_view>

namespace ampcheck {

enum class Verdict : std::uint8_t {
  rounding,             ///< every judged element lies in its interval, every relation holds
  empty,                ///< nothing to compare, rightly: zero rows; guards and return code were checked
  skipped,              ///< not run, with a reason
  range,                ///< only range effects: overflow or underflow outside what the case demands
  another_subgradient,  ///< at a kink, other than declared and as good
  ill_conditioned,      ///< a whole output is blind
  range_declared,       ///< overflow or underflow inside the input domain or loss-scale window that the op declares
  non_smooth,           ///< an invalid subgradient at a kink
  bug,                  ///< outside the deterministic interval
  precision_contract,   ///< outside, and a lower-precision replay explains it
  structural,           ///< an exact relation is broken
  timeout,
  crash,
};

/// "ROUNDING", "PRECISION_CONTRACT", ...
const char* name(Verdict verdict);
/// True for the verdicts that end with exit code 1.
bool convicts(Verdict verdict);

/// What was found: 1xx values, 2xx range and conditioning, 3xx contracts, 4xx exact relations, 5xx the call itself, 6xx
/// what only a simulated GPU shows.
/// Named as users see them. Each but `none` has its row in code_texts(), in this order.
enum class Code : std::uint8_t {
  none,  ///< nothing was found
  ac101,
  ac102,
  ac103,
  ac104,
  ac105,
  ac106,
  ac201,
  ac202,
  ac203,
  ac204,
  ac205,
  ac206,
  ac301,
  ac302,
  ac303,
  ac304,
  ac305,
  ac401,
  ac402,
  ac403,
  ac404,
  ac405,
  ac406,
  ac407,
  ac408,
  ac409,
  ac410,
  ac411,
  ac412,
  ac501,
  ac502,
  ac601,
  ac602,
  ac603,
  ac604,
  ac605,
};

/// A row of the table of codes: what `ampcheck explain CODE` prints.
struct CodeText {
  Code code;
  const char* name;  ///< "AC101"
  Verdict verdict;
  const char* title;
  const char* meaning;
  const char* remedy;
  const char* example = nullptr;     ///< a case of a kernel in the program that shows it: `explain` runs it
  const char* transcript = nullptr;  ///< what a library showed, where no kernel in the program does
};
std::span<const CodeText> code_texts();
/// Of any code but `none`.
const CodeText& text_of(Code code);
/// Null if no code has this name.
const CodeText* find_code(std::string_view name);
/// The code of a name that a file or another process gave; "" is none. Throws Error for a name that no code has.
Code read_code(std::string_view name);

/// "AC101"; empty for none.
const char* name(Code code);
std::ostream& operator<<(std::ostream& out, Code code);

/// AC30x: right for another precision contract than the declared one.
constexpr bool is_contract_departure(Code code) { return code >= Code::ac301 && code <= Code::ac305; }
/// AC101, AC102: a wrong number where a finite one is due.
constexpr bool is_wrong_number(Code code) { return code == Code::ac101 || code == Code::ac102; }
/// AC410, AC411: a call does not stand alone.
constexpr bool is_history(Code code) { return code == Code::ac410 || code == Code::ac411; }
/// AC402, AC403: a launch wrote where it may not; counted by launches, not by elements.
constexpr bool is_stray_write(Code code) { return code == Code::ac402 || code == Code::ac403; }

}  // namespace ampcheck
