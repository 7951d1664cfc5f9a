// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks from a C++ program: the cases of an op are run and judged as `ampcheck check` does it, and the report is
/// data.
///
///     #include <ampcheck/check.h>
///
///     int main() {
///       namespace check = ampcheck::check;
///       const check::Library library = check::load_plugin("./libmy_norm.so");
///       check::Options options;
///       options.dtypes = {"bf16"};
///       const check::Report report = check::run(library.ops, options);
///       for (const check::Finding& finding : report.findings())
///         std::printf("%s %s: %s\n", finding.code.c_str(), finding.case_name.c_str(), finding.cause.c_str());
///       return report.passed() ? 0 : 1;
///     }
///
/// CMake: `find_package(ampcheck REQUIRED COMPONENTS check)`, `target_link_libraries(my_program PRIVATE
/// ampcheck::check)`. C++20.
///
/// A wrong kernel is a finding, never an exception. Exceptions are for misuse (UsageError) and for what the machine
/// lacks (EnvironmentError). All functions may be called from several threads at a time, and several run() with
/// different options may go on at the same time in one process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ampcheck::checks {
struct OpDef;
}
struct ac_plugin;

/// Checks of kernels, and their reports.
namespace ampcheck::check {

// ---- Errors ---------------------------------------------------------------------------------------------------------

/// What all exceptions of this header are. what() says where, what was got and what was wanted.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The caller asks for what there is not: an unknown op or dtype, a case name that is none, a library whose
/// description is invalid or whose formula is not certified. The program `ampcheck` exits 2 for these.
struct UsageError : Error {
  using Error::Error;
};

/// A file, a library or a device that was asked for is not there. The program `ampcheck` exits 6 for these.
struct EnvironmentError : Error {
  using Error::Error;
};

// ---- Ops ------------------------------------------------------------------------------------------------------------

/// An op that can be checked: built in, planted, of a library, or described by the program itself. A value: copies are
/// the same op. What describe() gave lives as long as the last copy, all others until the program ends.
class Op {
 public:
  /// "softmax"; of a planted fault or a correct variant "softmax.dropped_tail".
  const std::string& name() const;
  /// One line.
  const std::string& summary() const;
  /// The library that it comes from, as it was given to load_plugin(); empty for a built-in op.
  const std::string& library() const;
  /// The storage dtypes that its contract names: "fp32", "fp16", "bf16", "fp64", "e4m3fn", "e5m2".
  std::vector<std::string> dtypes() const;
  /// Names of its inputs and outputs, in the op's order. The gradient of an input "x" is "dx".
  std::vector<std::string> inputs() const;
  std::vector<std::string> outputs() const;  ///< See inputs().

 private:
  friend struct Internals;
  explicit Op(std::shared_ptr<const checks::OpDef> op) : op_(std::move(op)) {}
  std::shared_ptr<const checks::OpDef> op_;
};

/// All built-in ops, in the order in which `ampcheck list` prints them; without the planted ones.
std::vector<Op> built_in_ops();

/// The built-in op of that name, or a planted one by its full name ("softmax.dropped_tail"); nothing if there is none.
std::optional<Op> find_op(std::string_view name);

/// The ops of a shared library.
struct Library {
  std::string path;     ///< As it was given.
  std::vector<Op> ops;  ///< In the library's order.
  /// Ops that the library describes and that are refused: "[library: op 'x'] what, got, want". The others are in `ops`.
  std::vector<std::string> refused;

  /// The op of that name; nothing if there is none.
  std::optional<Op> find(std::string_view name) const;
};

/// Loads a shared library that exports ops (ampcheck/op.h, ampcheck/ampcheck_op.h), or the library of a launcher's TOML
/// file, for the life of the process. A second call with the same path gives the same ops. Runs no kernel.
/// @throws EnvironmentError if it cannot be loaded.
/// @throws UsageError if it describes no valid op.
Library load_plugin(const std::string& path);

/// Ops that the calling program describes itself, with kernels of its own: what ampcheck_plugin_v1 of a library would
/// return (ampcheck/ampcheck_op.h). The description is copied; what ac_op::user points to must live as long as the ops.
/// `name` stands for the library in messages and in Op::library(), and may not be empty. Runs no kernel. `forget`:
/// takes from the kernels what they keep from call to call, as a new process would; with it calls are tried after other
/// calls (AC410, AC411).
/// @throws UsageError if it describes no valid op.
Library describe(const ac_plugin& description, const std::string& name, std::function<void()> forget = nullptr);

/// A tensor of a case, row-major.
struct CaseTensor {
  std::string name;                 ///< As the op names it.
  std::string dtype;                ///< Its dtype in this case.
  std::vector<std::int64_t> shape;  ///< Its extents.
  std::vector<double> values;       ///< All of them exact in that dtype.
};

/// What a case gives to the kernel: the inputs that are there, in the op's order.
/// @throws UsageError for a name that is no case of this op.
std::vector<CaseTensor> inputs_of(const Op& op, const std::string& case_name);

// ---- What is run ----------------------------------------------------------------------------------------------------

/// Where kernels run.
enum class Device : std::uint8_t { cpu, cuda };

/// How much data the cases have: values, shapes, layouts and attributes (`--regimes`).
enum class Regimes : std::uint8_t {
  quick,     ///< About a fifth of `standard`.
  standard,  ///< The usual set.
  all,
};

/// Whether to check also at tensors that built-in nets met while they trained (`--real`). Built-in ops only.
enum class RealTensors : std::uint8_t {
  found,  ///< Where their data is installed.
  on,     ///< EnvironmentError where it is not.
  only,   ///< At these alone.
  off,
};

/// A set dimension: the extent of a symbol of the op, `{"D", 1025}`.
using Extent = std::pair<std::string, std::int64_t>;

/// How far a run is.
struct Progress {
  std::size_t done = 0;      ///< Cases that are done.
  std::size_t all = 0;       ///< Cases that were chosen, and those that were added on the way.
  std::string_view last;     ///< Name of the last case that was done; valid during the call.
  bool last_failed = false;  ///< Whether that one has a finding that convicts.
};

/// What a run checks and how. The defaults are those of `ampcheck check`, whose options messages name.
struct Options {
  /// Full case names ("softmax(x=fp16[5,7],seed=1)", as a report prints them) or patterns with * and ? over names of
  /// ops or cases. Empty: all cases of the ops.
  std::vector<std::string> cases;
  std::vector<std::string> dtypes;      ///< Storage dtypes ("fp16"); empty: all of each op's contract.
  std::uint64_t seeds = 1;              ///< Number of seeds: each case is run with first_seed, first_seed + 1, ...
  std::uint64_t first_seed = 1;         ///< See seeds.
  Regimes regimes = Regimes::standard;  ///< Size of the set of cases.
  std::vector<Extent> extents;          ///< Instead of the extents that cases have (`--shapes N=64,D=1025`).
  RealTensors real_tensors = RealTensors::found;  ///< Tensors of nets that trained.
  std::string data;                               ///< Folder of the data of `real_tensors`; empty: the installed one.
  /// One op at tensors of the caller: a .safetensors or .npz file, or a folder of these and .npy files, with inputs by
  /// the op's names, and cotangents ("dy" of output "y") if there are some. Empty: generated data. Then `cases` may
  /// hold one word that sets attributes ("layer_norm(eps=0.001)"), and `regimes`, `extents` and `real_tensors` stay as
  /// they are.
  std::string inputs;

  Device device = Device::cpu;  ///< Where kernels run.
  int jobs = 0;                 ///< Cases that run at a time; 0: one for each core.
  bool relations = true;    ///< Whether exact relations (the same bits again, guards, row independence) are checked.
  std::int64_t memory = 0;  ///< Memory limit for concurrent cases, in bytes; 0: 80 % of what is free. A larger case is
                            ///< judged in part, or skipped.
  double time_budget = 0;   ///< Seconds after which no further case starts; 0: none.
  /// The program `ampcheck`, whose processes run the kernels of a library: what a kernel does to its process is then a
  /// finding of its case. Empty: kernels run in the calling process, and one that crashes ends it. Built-in kernels
  /// always do.
  std::string worker_program;
  double timeout = 60;  ///< Seconds that the kernel of a case may take in a worker.

  /// How a reader of the report runs a case again: a line in which {} stands for its name. Empty: `ampcheck replay`.
  std::string again;

  /// Called after each case, from one thread at a time; null: not called.
  std::function<void(const Progress&)> progress;
  /// Set it to stop: no further case starts, and Report::interrupted() says so. Null: nothing stops a run.
  const std::atomic<bool>* cancel = nullptr;
};

// ---- What was found -------------------------------------------------------------------------------------------------

/// What a check says of a tensor or a case, from the mildest to the gravest. `ampcheck explain` describes them.
enum class Verdict : std::uint8_t {
  rounding,             ///< Every judged element lies in its interval, every relation holds.
  empty,                ///< Nothing to compare, rightly: no rows.
  skipped,              ///< Not run; the note says why.
  range,                ///< Only overflow or underflow outside of what the case demands.
  another_subgradient,  ///< At a kink another value than declared, and as good.
  ill_conditioned,      ///< The interval of a whole output accepts anything.
  range_declared,       ///< Overflow or underflow inside of what the op's contract promises.
  non_smooth,           ///< An invalid subgradient at a kink.
  bug,                  ///< Outside of the interval.
  precision_contract,   ///< Outside, and arithmetic of lower precision than declared explains it.
  structural,           ///< An exact relation is broken.
  timeout,              ///< The kernel did not return in Options::timeout.
  crash,                ///< The kernel threw, returned an error code, or ended its process.
};

/// "ROUNDING", "PRECISION_CONTRACT", ...: as reports print it. Some share a name: range and range_declared are "RANGE".
const char* name(Verdict verdict);
/// Whether it fails a run: ill_conditioned and all that stand behind it.
bool convicts(Verdict verdict);

/// One element outside of its interval, or near to its ends.
struct Element {
  std::vector<std::int64_t> index;  ///< In the tensor, one for each dimension.
  double got = 0;                   ///< The kernel's value.
  double want = 0;                  ///< The reference, rounded to the tensor's dtype.
  std::uint64_t got_bits = 0;       ///< The code of got in that dtype.
  std::uint64_t want_bits = 0;      ///< The code of want.
  double ulp = 0;                   ///< |got - want| in ulps of that dtype at the larger of both.
  double low = 0;                   ///< Lower end of the allowed interval, in that dtype; itself allowed.
  double high = 0;                  ///< Upper end, the same.
  std::string interval_from;        ///< Form and derivation: "softmax: derived, any order, fp32".
};

/// One check of one tensor of a case, or one exact relation.
struct Check {
  std::string name;                     ///< "forward y", "backward dx probe 3", "guards", ...
  std::string subject;                  ///< Tensor and pass, whatever the probe: "backward dx".
  Verdict verdict = Verdict::rounding;  ///< What it says.
  std::string code;                     ///< Stable code of a finding ("AC101"; `ampcheck explain AC101`); empty: none.
  std::string dtype;                    ///< Of the tensor.
  std::int64_t compared = 0;            ///< Elements that were compared.
  std::int64_t failed = 0;              ///< Of these: outside of their interval.
  std::int64_t blind = 0;               ///< Of these: the interval accepts 0 and twice the value.
  std::int64_t unusual = 0;             ///< Of these: inside, but outside of what correct kernels usually show.
  std::int64_t range = 0;      ///< Of these: not judged, since an intermediate leaves the compute type's range.
  std::int64_t unjudged = 0;   ///< Elements beside the compared ones, of rows that were not sampled.
  double max_ratio = 0;        ///< Largest error beyond the rounding to storage, in units of the allowed one.
  std::string cause;           ///< Likely cause in words; empty where none was found.
  std::string note;            ///< Reason of a skip, or what else a reader should know.
  std::vector<Element> worst;  ///< The worst elements, worst first.
};

/// One case: one call of an op, forward and backward, at given data.
struct Case {
  std::string name;                     ///< Runs it again, in Options::cases or as `ampcheck replay NAME`.
  std::string op;                       ///< Name of the op.
  std::string library;                  ///< Of the op; empty for a built-in one.
  std::string dtype;                    ///< Storage dtype.
  Verdict verdict = Verdict::rounding;  ///< The gravest of its checks.
  std::string code;                     ///< Of the check that decides; empty where nothing was found.
  std::string note;                     ///< Why it was skipped, and the like.
  double seconds = 0;                   ///< That it took.
  std::string smallest;                 ///< Name of the smallest failing case: of the same fault, where one was found.
  std::string values;         ///< The few numbers that the failure takes, in words, where they were looked for.
  std::vector<Check> checks;  ///< All checks of it, those that hold too.
};

/// A failing case in short: the check that decides it.
struct Finding {
  Verdict verdict = Verdict::bug;  ///< Of the case.
  std::string code;                ///< "AC101"
  std::string op;                  ///< Name of the op.
  std::string case_name;           ///< Case::name
  std::string check;               ///< Check::name
  std::string tensor;              ///< Check::subject: "backward dx"; of a relation its name and tensor.
  std::string cause;               ///< Check::cause
  std::vector<Element> worst;      ///< Check::worst
};

/// Sums over the cases of a report.
struct Totals {
  std::int64_t cases = 0;     ///< passed + failed + skipped.
  std::int64_t passed = 0;    ///< Cases without a finding that convicts.
  std::int64_t failed = 0;    ///< Cases with one.
  std::int64_t skipped = 0;   ///< Cases that did not run.
  std::int64_t elements = 0;  ///< Elements that were compared.
  std::int64_t blind = 0;     ///< Of these: see Check::blind.
};

/// What a run found. A value: copies share what they hold.
class Report {
 public:
  /// In the order in which they were chosen, those that were added on the way behind them.
  const std::vector<Case>& cases() const;
  /// One for each case that fails, in the order of the cases.
  const std::vector<Finding>& findings() const;
  /// What a reader should know of the run as a whole.
  const std::vector<std::string>& notes() const;
  Totals totals() const;  ///< Sums over all cases.
  /// Whether it was stopped before all chosen cases had run.
  bool interrupted() const;
  /// Whether every chosen case ran, at least one was judged, and none failed: `ampcheck check` would exit 0.
  bool passed() const;
  double seconds() const;  ///< That the run took.

 private:
  friend struct Internals;
  struct State;
  explicit Report(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Checks ops with these options. All of them are built in (or planted), or all are of one library.
/// @throws UsageError for an empty list, ops of several libraries, an unknown dtype, a selector of Options::cases that
///   is no case of these ops, or options that leave no case; a library's formula that is not certified, if all are.
/// @throws EnvironmentError for a device, a file or data that is asked for and not there.
Report run(const std::vector<Op>& ops, const Options& options = {});
/// The same for one op.
Report run(const Op& op, const Options& options = {});

/// Of the changes of an op's formula (a term left out, a factor, a sign, a tail, a count that is off by one, sums in
/// fewer bits), how many the cases of a report would show.
struct Power {
  std::int64_t changes = 0;         ///< That move the numbers of these cases.
  std::int64_t found = 0;           ///< Of these: a kernel that computed so would be found.
  std::vector<std::string> missed;  ///< The others: "forward y: without the term eps".
  std::int64_t cases = 0;           ///< Cases that were looked at, 40 at most.
};

/// The detection power of a report's cases for its op. Runs no kernel. An op without a formula has no changes.
/// @throws UsageError if the report is of another op.
Power power_of(const Op& op, const Report& report, bool backward = true);

/// The report as `ampcheck check --json` writes it: schema "ampcheck.check/1", UTF-8, with a final end of line. Numbers
/// whose bits matter are hexadecimal floats in strings.
std::string to_json(const Report& report);

/// The report as `ampcheck check` prints it, without colours.
std::string to_text(const Report& report);

}  // namespace ampcheck::check
