// SPDX-License-Identifier: Apache-2.0
// check --dump: judges tensors that somebody saved against a formula.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "checks/data/file_tensors.h"
#include "checks/reach/coverage.h"
#include "checks/run/dump.h"
#include "reference/certify/certify.h"
#include "reference/text/formula_parse.h"
#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/plugins.h"
#include "tools/choose/user_tensors.h"
#include "tools/commands/commands.h"
#include "tools/report/reports.h"
#include "tools/report/shell_word.h"

namespace ampcheck::tools {

namespace {

/// A formula in text has a statement; an op's name stands alone, or with its attributes in brackets.
bool is_op(const std::string& formula) {
  const std::string_view name = op_of(formula);
  return !name.empty() && (formula.back() == ')' || name.size() == formula.size()) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

const checks::OpDef& named_op(const OpOptions& options, const std::string& formula) {
  OpOptions only = options;
  only.words = {std::string(op_of(formula))};
  const std::vector<const checks::OpDef*> ops = select_ops(only);
  if (ops.size() != 1) throw UsageError("[--formula] got '" + formula + "', want one op");
  return *ops.front();
}

}  // namespace

DumpedOp dumped_op(const CaseOptions& cases, const DumpOptions& options, const TensorFile& dump,
                   std::vector<std::string>& notes) {
  checks::DumpContract contract{.storage = std::nullopt, .accumulate = options.accumulator, .math = {}};
  if (cases.dtypes.size() > 1)
    throw UsageError("[--dump] got --dtype more than once, want the one type that is stored");
  if (!cases.dtypes.empty()) contract.storage = cases.dtypes.front();
  contract.math = options.math == "cuda"    ? checks::cuda_math()
                  : options.math == "glibc" ? checks::glibc_math()
                                            : checks::own_math();
  const bool known = is_op(options.formula);
  DumpedOp out{known ? checks::op_with_contract(
                           checks::op_for_file(named_op(cases, options.formula), dump, contract.storage), contract)
                     : checks::op_of_formula(dump, options.formula, contract),
               {},
               {}};
  const auto data = checks::data_of_file(dump);
  out.call = checks::file_call(
      out.op, data, known ? contract.storage : std::optional<Dtype>(out.op.signature.precision.storage.front()));
  if (known) out.call = parse_call(with_fields(out.call, out.op.signature, options.formula), out.op.signature);
  out.call.data = data;
  checks::require_file_call(out.op, out.call, true);
  if (known) {
    out.certificate = checks::certificate_of(out.op);
    return out;
  }
  std::string why;
  out.certificate = checks::certify_formula(out.op, out.call, why);
  if (!why.empty())
    notes.push_back("the formula's gradient is not certified: " + why);
  else if (!(out.certificate.digits >= reference::kCertifiedDigits))
    throw UsageError(
        fmt::format("[--formula] got a formula whose gradient agrees with its difference in 100 digits to {:.1f} "
                    "digits, want {:.0f} "
                    "(a wrong 'with', or a kink everywhere?)",
                    out.certificate.digits, reference::kCertifiedDigits));
  return out;
}

namespace {

std::string again_line(const CheckOptions& options) {
  std::string out = "ampcheck check";
  if (!options.plugin_ops.empty()) out += " " + shell_word(options.plugin_ops.front()->plugin);
  out += " --dump " + shell_word(options.dump) + " --formula " + shell_word(options.formula);
  if (!options.dtypes.empty()) out += std::string(" --dtype ") + name(options.dtypes.front());
  if (options.accumulator != Dtype::fp32) out += " --accumulate " + shell_word(name(options.accumulator));
  if (options.math != "cuda") out += " --math " + options.math;
  if (options.as_written) out += " --as-written";
  return out;
}

Report judged_report(const CheckOptions& options) {
  Report report;
  const TensorFile dump = read_tensors(options.dump);
  const DumpedOp judged = dumped_op(options, options, dump, report.notes);
  checks::DumpResult found = checks::judge_dump(judged.op, judged.call, dump, options.as_written);
  report.seconds = found.result.seconds;
  report.cases.push_back(std::move(found.result));
  if (judged.certificate.points > 0) report.certificates.push_back(judged.certificate);
  report.notes.insert(report.notes.end(), found.notes.begin(), found.notes.end());
  return report;
}

}  // namespace

ExitCode check_dump_command(const CheckOptions& options) {
  if (options.dump.empty()) throw UsageError("[--formula] got no --dump, want the tensors too: --dump FILE");
  if (options.formula.empty())
    throw UsageError("[--dump] got no --formula, want an op's name or a formula as text (ampcheck explain dump)");
  if (!options.words.empty())
    throw UsageError("[--dump] got the selector '" + options.words.front() +
                     "', want none: --formula says what is judged");
  if (!options.inputs.empty()) throw UsageError("[--dump] got --inputs too, want one of them");
  if (options.device != Device::cpu) throw UsageError("[--dump] got --device cuda, want none: no kernel runs");
  for (const ReportFile& file : options.reports) require_writable(file.path);
  if (options.jobs != 0) set_threads(options.jobs);
  RunFacts facts{.build = build_facts(),
                 .machine = machine_facts(),
                 .device = Device::cpu,
                 .device_text = "saved tensors: no kernel runs",
                 .planned = 1,
                 .verbose = options.verbose,
                 .again = again_line(options)};
  const Report report = as_usage([&] { return judged_report(options); });
  const std::string text = options.json ? json_report(report, facts)
                                        : console_report(report, facts, stdout_style()) +
                                              console_checks(report.cases.front(), stdout_style());
  write_stdout(text);
  for (const ReportFile& file : options.reports) write_file(file.path, file.text(report, facts));
  return exit_code_of(report, facts.planned);
}

}  // namespace ampcheck::tools
