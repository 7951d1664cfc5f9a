// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/cheat_audit.h"

#include <algorithm>

#include "checks/run/runner.h"
#include "src/op_call.h"

namespace ampcheck::checks::zoo {

namespace {

bool wanted(const AuditOptions& options, const std::string& name) {
  if (options.only && !options.only(name)) return false;
  return options.patterns.empty() || std::ranges::any_of(options.patterns, [&](const std::string& pattern) {
           return matches(pattern, name) || matches(pattern, name.substr(0, name.find('.')));
         });
}

/// Whether a text has one of the words, which | separates.
bool has_words(const std::string& text, const std::string& words) {
  for (std::size_t from = 0; from <= words.size();) {
    const std::size_t to = std::min(words.find('|', from), words.size());
    if (text.find(words.substr(from, to - from)) != std::string::npos) return true;
    from = to + 1;
  }
  return false;
}

CheatTrial tried(const Cheat& cheat, Dtype dtype, const AuditOptions& options) {
  CheatTrial out{.cheat = &cheat, .dtype = dtype};
  std::vector<Case> cases;
  for (std::uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed)
    for (OpCall& call : cases_of(cheat.planted.op.signature, dtype, CaseSet::quick, seed))
      cases.push_back({&cheat.planted.op, std::move(call)});
  RunOptions run;
  run.jobs = 1;  // kernels that count their calls, one call at a time
  run.brief = true;
  run.cancel = options.cancel;
  const Report report = run_cases(cases, run);
  out.cases = static_cast<std::int64_t>(report.cases.size());
  for (const CaseResult& result : report.cases) {
    if (!convicts(result.verdict)) continue;
    const CheckResult* const check = deciding_check(result);
    const std::string cause = check == nullptr ? "" : check->cause;
    if (out.convicted++ == 0) {
      out.code = result.code;
      out.cause = cause;
      out.case_name = result.name;
    }
    out.named += result.code == cheat.planted.code && has_words(cause, cheat.words);
  }
  return out;
}

}  // namespace

std::vector<CheatTrial> audit_cheats(const AuditOptions& options) {
  const std::vector<Dtype> all = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  std::vector<CheatTrial> out;
  for (const Cheat& cheat : cheats()) {
    if (!wanted(options, cheat.planted.op.signature.name)) continue;
    for (const Dtype dtype : options.dtypes.empty() ? all : options.dtypes) {
      if (options.cancel != nullptr && options.cancel->load()) return out;
      const std::vector<Dtype>& declared = cheat.planted.op.signature.precision.storage;
      if (std::ranges::find(declared, dtype) == declared.end()) continue;
      out.push_back(tried(cheat, dtype, options));
    }
  }
  return out;
}

}  // namespace ampcheck::checks::zoo
