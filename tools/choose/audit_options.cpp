// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/audit_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

void add_gate_options(CLI::App* command, GateOptions& gate) {
  const auto number = [&](const char* flag, const char* help, std::optional<double>& to) {
    each(command, flag, "X", help, [flag, &to](const std::string& t) {
      to = parse_number(t);
      if (!to) throw UsageError(std::string("[") + flag + "] got '" + t + "', want a number");
    });
  };
  number("--atol", "of gate: |got - want| <= atol + rtol |want|; without any rule torch's default of the type",
         gate.atol);
  number("--rtol", "of gate: see --atol", gate.rtol);
  number("--matched", "of gate: atol and rtol must hold at this share of the elements", gate.matched);
  number("--mean", "of gate: mean |got - want| at most this", gate.mean);
  number("--nmse", "of gate: sum (got - want)^2 at most this share of sum want^2", gate.nmse);
  number("--cosine", "of gate: cosine of the angle between got and want at least this", gate.cosine);
  number("--factor", "of gate: largest error at most this many times that of the op's own kernel", gate.factor);
  text_option(command, "--rules", "FILE",
              "of gate: TOML file with tables [fp32], [fp16], [bf16] of atol and rtol, or of rule and limit",
              gate.rules);
  text_option(command, "--range", "R", "of gate: data regime of the cases (normal)", gate.range);
  add_flag(command, "--rounded-reference", gate.rounded_reference,
           "of gate: the rule compares with the reference rounded to the storage type");
}

}  // namespace

void add_options(CLI::App* command, AuditOptions& o) {
  add_words(command, "WHAT", o.words,
            "zoo, then names of its kernels or patterns (none: all); or gate, then ops or case names, a library "
            "or TOML file first if they are of one",
            Words::some);
  add_set_options(command, o);
  add_jobs_option(command, o.jobs);
  add_isolation_options(command, o, "of gate: seconds that a call of a library's kernel may take (60)");
  add_flag(command, "-v,--verbose", o.verbose, "of zoo: every kernel with what was due and what was found");
  add_gate_options(command, o.gate);
  add_dump_options(command, o);
}

}  // namespace ampcheck::tools
