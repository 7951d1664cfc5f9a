// SPDX-License-Identifier: Apache-2.0
// Checks ops from a program of one's own: my_checks OP|LIBRARY [DTYPE]. Prints each finding; with JSON as a third word
// the report instead. Exits 1 if there is a finding.
#include <ampcheck/check.h>

#include <cstdio>
#include <string>

namespace check = ampcheck::check;

namespace {

std::vector<check::Op> ops_of(const std::string& word) {
  if (word.find('/') != std::string::npos) return check::load_plugin(word).ops;
  const std::optional<check::Op> op = check::find_op(word);
  if (!op) throw check::UsageError("no op '" + word + "'");
  return {*op};
}

void print(const check::Report& report) {
  for (const check::Finding& finding : report.findings()) {
    std::printf("%s %s %s in %s: %s\n", finding.code.c_str(), check::name(finding.verdict), finding.tensor.c_str(),
                finding.case_name.c_str(), finding.cause.c_str());
    if (finding.worst.empty()) continue;
    const check::Element& worst = finding.worst.front();
    std::printf("  got %g, allowed %g to %g (%s)\n", worst.got, worst.low, worst.high, worst.interval_from.c_str());
  }
  const check::Totals totals = report.totals();
  std::printf("%lld cases, %lld failed\n", static_cast<long long>(totals.cases), static_cast<long long>(totals.failed));
}

}  // namespace

int main(int count, char** words) {
  try {
    check::Options options;
    options.regimes = check::Regimes::quick;
    options.real_tensors = check::RealTensors::off;
    if (count > 2) options.dtypes = {words[2]};
    const check::Report report = check::run(ops_of(count > 1 ? words[1] : "softmax"), options);
    if (count > 3)
      std::fputs(check::to_json(report).c_str(), stdout);
    else
      print(report);
    return report.passed() ? 0 : 1;
  } catch (const check::Error& error) {
    std::fprintf(stderr, "my_checks: %s\n", error.what());
    return 2;
  }
}
