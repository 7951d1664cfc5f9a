// SPDX-License-Identifier: Apache-2.0
// Logs of runs whose fate is known, in every framework's words.
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "checks/scaler/answers.h"
#include "tests/support/planted_logs.h"

namespace ampcheck::checks::scaler {
namespace {

std::string said(const LogAudit& audit) {
  std::string out;
  for (const Answer& a : audit.answers)
    out += std::string("  ") + a.question + " " + name(a.health) + " " + a.kind + ": " + a.text + "\n";
  return out;
}

TEST(PlantedLogs, GetTheClassThatIsDue) {
  const std::vector<tests::PlantedLog> logs = tests::planted_logs();
  ASSERT_GE(logs.size(), 60u);
  std::size_t right = 0, called_broken = 0;
  std::set<std::string> troubles, frameworks;
  for (const tests::PlantedLog& log : logs) {
    const LogAudit audit = audit_log(log.text);
    const Answer& head = audit.headline();
    const bool fits = head.health == log.due && (log.question.empty() || head.question == log.question) &&
                      (log.kind.empty() || head.kind == log.kind);
    right += fits ? 1 : 0;
    called_broken += log.healthy && head.health == Health::broken ? 1 : 0;
    for (const auto& [number, lines] : audit.log.by_grammar)
      if (number >= 0) frameworks.insert(log_grammars()[static_cast<std::size_t>(number)].framework);
    if (!log.healthy) troubles.insert(log.kind);
    EXPECT_FALSE(log.healthy && head.health == Health::broken) << log.name << "\n" << said(audit);
    EXPECT_TRUE(fits) << log.name << ": " << name(log.due) << " " << log.question << " " << log.kind << " is due\n"
                      << said(audit);
  }
  EXPECT_GE(troubles.size(), 8u);
  EXPECT_GE(static_cast<double>(right), 0.97 * static_cast<double>(logs.size())) << right << " of " << logs.size();
  EXPECT_EQ(called_broken, 0u);
  for (const Grammar& grammar : log_grammars())
    EXPECT_TRUE(frameworks.contains(grammar.framework)) << "no planted log of " << grammar.framework;
  std::cout << "score: " << right << " of " << logs.size() << " logs of " << frameworks.size()
            << " frameworks have the class that is due; healthy ones called BROKEN: " << called_broken << "\n";
}

TEST(PlantedLogs, LongOnesAreReadWhole) {
  for (const char* format : {"megatron", "csv", "json", "internevo"}) {
    const LogAudit audit = audit_log(tests::long_log(format, 100'000));
    EXPECT_EQ(audit.headline().health, Health::harmless) << format << "\n" << said(audit);
  }
}

}  // namespace
}  // namespace ampcheck::checks::scaler
