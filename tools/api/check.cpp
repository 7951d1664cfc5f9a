// SPDX-License-Identifier: Apache-2.0
// ampcheck/check.h on top of what `ampcheck check` runs.
#include "src/api/ampcheck/check.h"

#include <algorithm>

#include "checks/doors/plugin.h"
#include "checks/reach/formula_power.h"
#include "tools/api/public_errors.h"
#include "tools/choose/check_plan.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/selection.h"
#include "tools/report/reports.h"
#include "tools/workers/isolation.h"

namespace ampcheck::check {

struct Report::State {
  ampcheck::Report report;
  tools::RunFacts facts;
  std::vector<Case> cases;
  std::vector<Finding> findings;
};

/// What only this file may see of the public types.
struct Internals {
  using State = Report::State;
  /// One that lives until the program ends.
  static Op op(const checks::OpDef& op) { return Op({std::shared_ptr<void>(), &op}); }
  static Op owned(std::shared_ptr<const checks::OpDef> op) { return Op(std::move(op)); }
  static const checks::OpDef& of(const Op& op) { return *op.op_; }
  static Report report(std::shared_ptr<const Report::State> state) { return Report(std::move(state)); }
  static const Report::State& of(const Report& report) { return *report.state_; }
};

namespace {

template <class F>
auto with_public_errors(F work) {
  return tools::with_public_errors<UsageError, EnvironmentError>(std::move(work));
}

const OpSignature& signature_of(const Op& op) { return Internals::of(op).signature; }

std::vector<std::string> names_of(const std::vector<TensorSpec>& tensors) {
  std::vector<std::string> out;
  for (const TensorSpec& tensor : tensors) out.push_back(tensor.name);
  return out;
}

Dtype dtype_of(const std::string& text) {
  if (const DtypeInfo* found = find_dtype(text)) return found->dtype;
  throw UsageError("[dtypes] got '" + text + "', want fp64, fp32, fp16, bf16, e4m3fn or e5m2");
}

checks::CaseSet set_of(Regimes regimes) {
  if (regimes == Regimes::quick) return checks::CaseSet::quick;
  return regimes == Regimes::all ? checks::CaseSet::all : checks::CaseSet::standard;
}

tools::RealTensors real_of(RealTensors real) {
  switch (real) {
    case RealTensors::found: return tools::RealTensors::found;
    case RealTensors::on: return tools::RealTensors::on;
    case RealTensors::only: return tools::RealTensors::only;
    case RealTensors::off: return tools::RealTensors::off;
  }
  throw UsageError("[real_tensors] got no value of RealTensors");
}

/// The ops and selectors: of a library its ops and the words, of built-in ops words alone.
void choose_ops(const std::vector<Op>& ops, const Options& given, tools::CheckOptions& out) {
  if (ops.empty()) throw UsageError("[run] got no op, want at least one");
  out.words = given.cases;
  for (const Op& op : ops) {
    if (op.library() != ops.front().library())
      throw UsageError("[run] got ops of '" + ops.front().library() + "' and of '" + op.library() +
                       "', want those of one library, or built-in ones: run() each alone");
    if (!op.library().empty())
      out.plugin_ops.push_back(&Internals::of(op));
    else if (given.cases.empty())
      out.words.push_back(op.name());
  }
}

tools::CheckOptions options_of(const std::vector<Op>& ops, const Options& given) {
  tools::CheckOptions out;
  out.verb = "check";
  choose_ops(ops, given, out);
  for (const std::string& dtype : given.dtypes) out.dtypes.push_back(dtype_of(dtype));
  if (given.seeds == 0) throw UsageError("[seeds] got 0, want at least 1");
  out.seeds = given.seeds;
  out.first_seed = given.first_seed;
  out.set = set_of(given.regimes);
  if (!given.extents.empty()) {
    out.shapes.kind = tools::ShapeFilter::Kind::extents;
    for (const auto& [symbol, extent] : given.extents) out.shapes.extents[symbol] = extent;
  }
  out.real = real_of(given.real_tensors);
  out.data = given.data;
  out.inputs = given.inputs;
  out.device = given.device == Device::cuda ? ampcheck::Device::cuda : ampcheck::Device::cpu;
  if (given.jobs < 0) throw UsageError("[jobs] got " + std::to_string(given.jobs) + ", want 0 or more");
  out.jobs = given.jobs;
  out.relations = given.relations;
  out.memory = given.memory;
  out.time_budget = given.time_budget;
  out.timeout = given.timeout;
  out.isolation = !given.worker_program.empty();
  return out;
}

/// Selectors may reach further than the ops that were asked for.
void keep_only(const std::vector<Op>& ops, tools::Selection& selection) {
  std::erase_if(selection.cases, [&](const checks::Case& item) {
    return std::none_of(ops.begin(), ops.end(), [&](const Op& op) { return &Internals::of(op) == item.op; });
  });
}

Element public_element(const ampcheck::Element& from) {
  return {.index = from.index,
          .got = from.got,
          .want = from.want,
          .got_bits = from.got_bits,
          .want_bits = from.want_bits,
          .ulp = from.ulp,
          .low = from.low,
          .high = from.high,
          .interval_from = from.interval_from};
}

Verdict public_verdict(ampcheck::Verdict verdict) {
  static_assert(static_cast<int>(Verdict::crash) == static_cast<int>(ampcheck::Verdict::crash));
  static_assert(static_cast<int>(Verdict::ill_conditioned) == static_cast<int>(ampcheck::Verdict::ill_conditioned));
  static_assert(static_cast<int>(Verdict::bug) == static_cast<int>(ampcheck::Verdict::bug));
  return static_cast<Verdict>(verdict);
}

Check public_check(const CheckResult& from) {
  Check out{.name = from.name(),
            .subject = ampcheck::name(subject_of(from)),
            .verdict = public_verdict(from.verdict),
            .code = ampcheck::name(from.code),
            .dtype = ampcheck::name(from.dtype),
            .compared = from.compared,
            .failed = from.failed,
            .blind = from.blind,
            .unusual = from.unusual,
            .range = from.range,
            .unjudged = from.unjudged,
            .max_ratio = from.max_ratio,
            .cause = from.cause,
            .note = from.note,
            .worst = {}};
  for (const ampcheck::Element& element : from.worst) out.worst.push_back(public_element(element));
  return out;
}

Case public_case(const CaseResult& from) {
  Case out{.name = from.name,
           .op = from.op,
           .library = from.plugin,
           .dtype = from.dtype,
           .verdict = public_verdict(from.verdict),
           .code = ampcheck::name(from.code),
           .note = from.note,
           .seconds = from.seconds,
           .smallest = from.smallest,
           .values = from.values,
           .checks = {}};
  for (const CheckResult& check : from.checks) out.checks.push_back(public_check(check));
  return out;
}

void add_finding(const CaseResult& result, std::vector<Finding>& findings) {
  const CheckResult* decides = deciding_check(result);
  if (!ampcheck::convicts(result.verdict) || decides == nullptr) return;
  const Check check = public_check(*decides);
  findings.push_back({.verdict = public_verdict(result.verdict),
                      .code = check.code,
                      .op = result.op,
                      .case_name = result.name,
                      .check = check.name,
                      .tensor = check.subject,
                      .cause = check.cause,
                      .worst = check.worst});
}

checks::RunOptions hooks_of(const Options& given, const tools::CheckOptions& options) {
  checks::RunOptions out = tools::run_options(options);
  out.cancel = given.cancel;
  tools::WorkerSetup workers = tools::worker_setup(options.plugin_ops, options, options.inputs);
  workers.program = given.worker_program;
  out.run = tools::isolated_run(workers, given.cancel);
  if (given.progress)
    out.progress = [&given](std::size_t done, std::size_t all, const CaseResult& last) {
      given.progress({.done = done, .all = all, .last = last.name, .last_failed = ampcheck::convicts(last.verdict)});
    };
  return out;
}

Report run_chosen(const std::vector<Op>& ops, const Options& given) {
  const tools::CheckOptions options = options_of(ops, given);
  const auto state = std::make_shared<Internals::State>();
  state->facts = {.build = tools::build_facts(),
                  .machine = tools::machine_facts(),
                  .device = options.device,
                  .device_text = tools::require_device(options.device),
                  .data = options.data,
                  .inputs = options.inputs,
                  .again_case = given.again};
  tools::Selection selection = tools::select_cases(options);
  keep_only(ops, selection);
  if (selection.cases.empty()) throw UsageError(tools::nothing_selected(options));
  tools::drop_uncertified(selection);  // its notes say which
  tools::say_what_is_left_out(options, selection);
  state->facts.planned = selection.cases.size();
  state->report = tools::run_selection(selection, hooks_of(given, options));
  for (const CaseResult& result : state->report.cases) {
    state->cases.push_back(public_case(result));
    add_finding(result, state->findings);
  }
  return Internals::report(state);
}

}  // namespace

const std::string& Op::name() const { return signature_of(*this).name; }
const std::string& Op::summary() const { return signature_of(*this).summary; }
const std::string& Op::library() const { return op_->plugin; }
std::vector<std::string> Op::inputs() const { return names_of(signature_of(*this).inputs); }
std::vector<std::string> Op::outputs() const {
  std::vector<std::string> out;
  for (const OutputSpec& output : signature_of(*this).outputs) out.push_back(output.name);
  return out;
}
std::vector<std::string> Op::dtypes() const {
  std::vector<std::string> out;
  for (const Dtype dtype : signature_of(*this).precision.storage) out.emplace_back(ampcheck::name(dtype));
  return out;
}

std::vector<Op> built_in_ops() {
  std::vector<Op> out;
  for (const checks::OpDef& op : checks::all_ops()) out.push_back(Internals::op(op));
  return out;
}

std::optional<Op> find_op(std::string_view name) {
  if (const checks::OpDef* op = checks::find_op(name)) return Internals::op(*op);
  return std::nullopt;
}

std::optional<Op> Library::find(std::string_view name) const {
  for (const Op& op : ops)
    if (op.name() == name) return op;
  return std::nullopt;
}

Library load_plugin(const std::string& path) {
  return with_public_errors([&] {
    const checks::Plugin& plugin = checks::load_plugin(path);
    Library out{.path = path, .ops = {}, .refused = {}};
    for (const checks::OpDef& op : plugin.ops) out.ops.push_back(Internals::op(op));
    for (const checks::RefusedOp& refused : plugin.refused) out.refused.push_back(refused.why);
    return out;
  });
}

namespace {

/// Kernels of this process whose memory their author can take away.
class Forgetting : public kernels::KernelHost {
 public:
  Forgetting(kernels::KernelFn forward, std::function<void()> forget)
      : forward_(std::move(forward)), forget_(std::move(forget)) {}
  void start_anew() override { forget_(); }
  std::int64_t equal_calls(const kernels::KernelCall& call, const std::vector<std::string>& written,
                           std::int64_t times) override {
    return kernels::equal_calls(forward_, call, written, times);
  }

 private:
  kernels::KernelFn forward_;
  std::function<void()> forget_;
};

}  // namespace

Library describe(const ac_plugin& description, const std::string& name, std::function<void()> forget) {
  return with_public_errors([&] {
    if (name.empty()) throw UsageError("[describe] got no name, want one for messages");
    std::vector<checks::RefusedOp> refused;
    Library out{.path = name, .ops = {}, .refused = {}};
    for (checks::OpDef& op : checks::ops_of(&description, name, &refused)) {
      op.plugin = name;
      if (forget) op.kernel.host = std::make_shared<Forgetting>(op.kernel.forward, forget);
      out.ops.push_back(Internals::owned(std::make_shared<const checks::OpDef>(std::move(op))));
    }
    for (const checks::RefusedOp& one : refused) out.refused.push_back(one.why);
    return out;
  });
}

std::vector<CaseTensor> inputs_of(const Op& op, const std::string& case_name) {
  return with_public_errors([&] {
    tools::CheckOptions options;
    options.verb = "check";
    if (!op.library().empty()) options.plugin_ops = {&Internals::of(op)};
    const checks::Case item = tools::parse_case(options, case_name);
    const OpSignature& signature = item.op->signature;
    std::vector<CaseTensor> out;
    for (const TensorSpec& spec : signature.inputs) {
      if (!item.call.has(spec)) continue;
      const Shape shape = item.call.shape(spec);
      out.push_back({.name = spec.name,
                     .dtype = ampcheck::name(item.call.dtype(spec)),
                     .shape = {shape.extent, shape.extent + shape.rank},
                     .values = checks::input_values(signature, item.call, spec)});
    }
    return out;
  });
}

const char* name(Verdict verdict) { return ampcheck::name(static_cast<ampcheck::Verdict>(verdict)); }
bool convicts(Verdict verdict) { return ampcheck::convicts(static_cast<ampcheck::Verdict>(verdict)); }

const std::vector<Case>& Report::cases() const { return state_->cases; }
const std::vector<Finding>& Report::findings() const { return state_->findings; }
const std::vector<std::string>& Report::notes() const { return state_->report.notes; }
bool Report::interrupted() const { return state_->report.interrupted; }
double Report::seconds() const { return state_->report.seconds; }
bool Report::passed() const {
  return tools::exit_code_of(state_->report, state_->facts.planned) == tools::ExitCode::passed;
}
Totals Report::totals() const {
  const tools::Totals of = tools::totals_of(state_->report);
  return {.cases = of.cases,
          .passed = of.passed,
          .failed = of.failed,
          .skipped = of.skipped,
          .elements = of.elements,
          .blind = of.blind};
}

Report run(const std::vector<Op>& ops, const Options& options) {
  return with_public_errors([&] { return run_chosen(ops, options); });
}
Report run(const Op& op, const Options& options) { return run(std::vector<Op>{op}, options); }

Power power_of(const Op& op, const Report& report, bool backward) {
  return with_public_errors([&] {
    tools::CheckOptions options;
    options.verb = "check";
    if (!op.library().empty()) options.plugin_ops = {&Internals::of(op)};
    std::vector<OpCall> calls;
    for (const Case& item : report.cases()) {
      if (item.verdict == Verdict::skipped) continue;
      if (item.op != op.name())
        throw UsageError("[power_of] got a report of '" + item.op + "', want one of '" + op.name() + "'");
      calls.push_back(tools::parse_case(options, item.name).call);
    }
    const checks::FormulaPower from = checks::formula_power(Internals::of(op), calls, backward);
    return Power{from.changes, from.found, from.missed, from.cases};
  });
}

std::string to_json(const Report& report) {
  const Internals::State& state = Internals::of(report);
  return tools::json_report(state.report, state.facts);
}

std::string to_text(const Report& report) {
  const Internals::State& state = Internals::of(report);
  return tools::console_report(state.report, state.facts, {});
}

}  // namespace ampcheck::check
