// SPDX-License-Identifier: Apache-2.0
#include "src/finding.h"

namespace ampcheck {

std::int64_t CaseResult::elements() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += judges_values(check.id) ? check.compared : 0;
  return n;
}

std::int64_t CaseResult::open() const {
  std::int64_t n = 0;
  for (const CheckResult& check : checks) n += judges_values(check.id) ? check.range : 0;
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

const CheckResult* deciding_check(const CaseResult& result) {
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict && (result.code == Code::none || check.code == result.code)) return &check;
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict) return &check;
  return nullptr;
}

CheckId subject_of(const CheckResult& check) {
  CheckId out = check.id;
  out.probe = -1;
  out.at_saved = false;
  return out;
}

}  // namespace ampcheck
