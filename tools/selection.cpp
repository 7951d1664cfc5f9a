// SPDX-License-Identifier: Apache-2.0
#include "tools/selection.h"

#include <algorithm>
#include <set>

#include "checks/file_tensors.h"
#include "checks/planted.h"
#include "checks/real_tensors.h"
#include "src/error.h"
#include "src/suggestion.h"
#include "tools/user_tensors.h"

namespace ampcheck::tools {

namespace {

using checks::OpDef;

bool is_pattern(const std::string& word) { return word.find_first_of("*?") != std::string::npos; }

/// A pattern with a dot in the op's name means planted faults and correct variants: built-in ops have none.
bool means_planted(const Options& options, const std::string& word) {
  return options.plugin_ops.empty() && is_pattern(word) && op_of(word).find('.') != std::string_view::npos;
}

/// The ops among which a pattern looks.
std::vector<const OpDef*> ops_for(const Options& options, const std::string& word) {
  if (!means_planted(options, word)) return ops_in_scope(options);
  std::vector<const OpDef*> out;
  for (const checks::PlantedOp& planted : checks::planted_ops()) out.push_back(&planted.op);
  return out;
}

/// The op of that exact name, or null; planted ones too where the built-in ops are meant.
const OpDef* find_in_scope(const Options& options, const std::string& name) {
  if (options.plugin_ops.empty()) return checks::find_op(name);
  for (const OpDef* op : options.plugin_ops)
    if (op->signature.name == name) return op;
  return nullptr;
}

[[noreturn]] void fail_op(const Options& options, const std::string& word) {
  std::vector<std::string> names;
  std::string list;
  for (const OpDef* op : ops_in_scope(options)) {
    names.push_back(op->signature.name);
    list += (list.empty() ? "" : ", ") + op->signature.name;
  }
  if (options.plugin_ops.empty() && word.find('.') != std::string::npos)
    for (const checks::PlantedOp& planted : checks::planted_ops()) names.push_back(planted.op.signature.name);
  throw UsageError("got unknown op '" + word + "'" + did_you_mean(word, names) + ", want one of " + list +
                   ", a case name, or a pattern with * and ?");
}

bool at_standard_shape(const OpSignature& signature, const OpCall& call, std::size_t which) {
  return std::all_of(signature.dims.begin(), signature.dims.end(), [&](const DimSpec& dim) {
    const auto found = call.dims.find(dim.symbol);
    return found == call.dims.end() || found->second == dim.standard[which];
  });
}

/// False if the filter leaves the case out; may change its extents.
bool admit_shape(const ShapeFilter& filter, const OpSignature& signature, OpCall& call) {
  using Kind = ShapeFilter::Kind;
  if (filter.kind == Kind::first) return at_standard_shape(signature, call, 0);
  if (filter.kind == Kind::standard)
    return at_standard_shape(signature, call, 0) || at_standard_shape(signature, call, 1) || at_standard_shape(signature, call, 2);
  for (const auto& [symbol, extent] : filter.extents)
    if (const auto found = call.dims.find(symbol); found != call.dims.end()) found->second = extent;
  return !signature.valid || signature.valid(call.dims, call.attributes);
}

/// Collects cases, each once.
class Collector {
 public:
  Collector(const Options& options, Selection& selection) : options_(options), selection_(selection) {}

  /// The generated cases of an op that `pattern` matches by op or case name.
  void add_generated(const OpDef& op, const std::string& pattern) {
    const OpSignature& signature = op.signature;
    const bool all = matches(pattern, signature.name);
    for (const Dtype storage : signature.precision.storage) {
      if (!admits(storage)) continue;
      for (std::uint64_t i = 0; i < options_.seeds; ++i)
        for (OpCall& call : checks::cases_of(signature, storage, options_.set, options_.first_seed + i))
          if (admit_shape(options_.shapes, signature, call) && (all || matches(pattern, call.str(signature))))
            add({&op, std::move(call)});
    }
  }

  void add(checks::Case item) {
    if (!admits(item.call.storage)) return;
    if (names_.insert(item.call.str(item.op->signature)).second) selection_.cases.push_back(std::move(item));
  }

 private:
  bool admits(Dtype storage) const {
    return options_.dtypes.empty() || std::find(options_.dtypes.begin(), options_.dtypes.end(), storage) != options_.dtypes.end();
  }

  const Options& options_;
  Selection& selection_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<const OpDef*> ops_in_scope(const Options& options) {
  if (!options.plugin_ops.empty()) return options.plugin_ops;
  std::vector<const OpDef*> out;
  for (const OpDef& op : checks::all_ops()) out.push_back(&op);
  return out;
}

checks::Case parse_case(const Options& options, const std::string& text) {
  const std::string name(op_of(text));
  const OpDef* op = find_in_scope(options, name);
  if (op == nullptr) fail_op(options, name);
  try {
    checks::Case out{op, parse_call(text, op->signature)};
    const bool real = checks::is_real_range(out.call.range);
    if (real && !op->plugin.empty()) throw Error("[case name] got a range of a real run in '" + text + "', want one of the generator: the nets call built-in ops");
    if (checks::is_file_range(out.call.range)) checks::require_file_call(*op, out.call);
    if (real) checks::require_real_call(op->signature, out.call);
    checks::require_regimes(op->signature, out.call);
    const auto& storage = op->signature.precision.storage;
    if (std::find(storage.begin(), storage.end(), out.call.storage) == storage.end())
      throw Error("[case name] got dtype " + std::string(ampcheck::name(out.call.storage)) + " in '" + text +
                  "', which " + name + " is not declared for");
    if (op->signature.valid && !op->signature.valid(out.call.dims, out.call.attributes))
      throw Error("[case name] got extents or attributes outside the domain of " + name + " in '" + text + "'");
    return out;
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::vector<const checks::OpDef*> select_ops(const Options& options) {
  const std::vector<std::string>& words = options.words;
  std::vector<const OpDef*> out;
  std::set<std::string> taken;
  const std::vector<std::string> patterns = words.empty() ? std::vector<std::string>{"*"} : words;
  for (const std::string& word : patterns) {
    std::vector<const OpDef*> found;
    if (const OpDef* exact = find_in_scope(options, word)) found.push_back(exact);
    else
      for (const OpDef* op : ops_for(options, word))
        if (matches(word, op->signature.name)) found.push_back(op);
    if (found.empty()) fail_op(options, word);
    for (const OpDef* op : found)
      if (taken.insert(op->signature.name).second) out.push_back(op);
  }
  return out;
}

namespace {

/// The ops of a selector that is a name or a pattern; none for a full case name.
std::vector<const OpDef*> ops_of(const Options& options, const std::string& word) {
  if (const OpDef* op = find_in_scope(options, word)) return {op};
  return is_pattern(word) ? ops_for(options, word) : std::vector<const OpDef*>{};
}

/// The steps of the real runs that a set of cases takes.
std::vector<int> steps_of(checks::CaseSet set) {
  std::vector<int> steps = {1, checks::models::kSteps};
  if (set == checks::CaseSet::quick) steps = {checks::models::kSteps};
  if (set == checks::CaseSet::all)
    for (int step = 2; step < checks::models::kSteps; ++step) steps.push_back(step);
  return steps;
}

/// The cases at real tensors that `word` matches by op or case name.
void add_real(const Options& options, const std::string& word, Collector& collector) {
  const std::vector<const OpDef*> ops = ops_of(options, word);
  if (ops.empty()) return;
  constexpr Dtype kStorage[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  for (checks::Case& item : checks::real_cases(ops, kStorage, steps_of(options.set)))
    if (matches(word, item.op->signature.name) || matches(word, item.call.str(item.op->signature))) collector.add(std::move(item));
}

}  // namespace

Selection select_cases(const Options& options) {
  if (!options.inputs.empty()) return cases_at_inputs(options);
  Selection selection;
  Collector collector(options, selection);
  checks::set_data_directory(options.data);
  const std::vector<std::string> words = options.words.empty() ? std::vector<std::string>{"*"} : options.words;
  for (const std::string& word : words) {
    const std::vector<const OpDef*> ops = ops_of(options, word);
    if (ops.empty()) collector.add(parse_case(options, word));  // an unknown op is told from a bad case name there
    else if (options.real != RealTensors::only)
      for (const OpDef* op : ops) collector.add_generated(*op, word);
  }
  if (!options.plugin_ops.empty()) return selection;  // the nets call built-in ops alone
  // Their shapes are those of the nets.
  if (options.real == RealTensors::off || (options.real == RealTensors::found && options.shapes.kind != ShapeFilter::Kind::all))
    return selection;
  try {
    for (const std::string& word : words) add_real(options, word, collector);
  } catch (const EnvironmentError& error) {
    if (options.real != RealTensors::found || !options.data.empty()) throw;
    selection.notes.push_back(std::string("no tensors of real runs: ") + error.what());
  }
  return selection;
}

std::string nothing_selected(const Options& options) {
  std::string words;
  for (const std::string& word : options.words) words += " '" + word + "'";
  return "ampcheck: nothing selected by" + (words.empty() ? std::string(" these options") : words) +
         " (ampcheck list --cases shows all case names)\n";
}

}  // namespace ampcheck::tools
