// SPDX-License-Identifier: Apache-2.0
#include "src/finding.h"

namespace ampcheck {

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::rounding: return "ROUNDING";
    case Verdict::empty: return "EMPTY";
    case Verdict::skipped: return "SKIPPED";
    case Verdict::range:
    case Verdict::range_declared: return "RANGE";
    case Verdict::ill_conditioned: return "ILL_CONDITIONED";
    case Verdict::another_subgradient:
    case Verdict::non_smooth: return "NON_SMOOTH";
    case Verdict::bug: return "BUG";
    case Verdict::precision_contract: return "PRECISION_CONTRACT";
    case Verdict::structural: return "STRUCTURAL";
    case Verdict::timeout: return "TIMEOUT";
    case Verdict::crash: return "CRASH";
  }
  return "?";
}

bool convicts(Verdict verdict) { return verdict >= Verdict::ill_conditioned; }

namespace {

/// Held against an interval; relations compare bits of two runs.
bool judges_values(const CheckResult& check) {
  return check.name.starts_with("forward ") || check.name.starts_with("backward ") || check.name.starts_with("jvp ");
}

}  // namespace

std::int64_t CaseResult::elements() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += judges_values(check) ? check.compared : 0;
  return n;
}

std::int64_t CaseResult::blind() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += check.blind;
  return n;
}

std::int64_t CaseResult::unjudged() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += check.unjudged;
  return n;
}

std::int64_t CaseResult::unusual() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += check.unusual;
  return n;
}

const CodeText* find_code(std::string_view code) {
  for (const CodeText& text : code_texts())
    if (text.code == code) return &text;
  return nullptr;
}

const CheckResult* deciding_check(const CaseResult& result) {
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict && (result.code.empty() || check.code == result.code)) return &check;
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict) return &check;
  return nullptr;
}

std::string subject_of(const CheckResult& check) { return check.name.substr(0, check.name.find(" probe")); }

}  // namespace ampcheck
