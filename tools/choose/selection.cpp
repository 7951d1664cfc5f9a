// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/data/regimes.h"
#include "checks/define/fp64_ops.h"
#include "checks/zoo/cheats.h"
#include "checks/zoo/planted.h"
#include "checks/zoo/zoo.h"
#include "src/error.h"
#include "src/suggestion.h"
#include "tools/choose/as_usage.h"
#include "tools/choose/user_tensors.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

using checks::OpDef;

bool is_pattern(const std::string& word) { return word.find_first_of("*?") != std::string::npos; }

/// A pattern with a dot in the op's name means planted faults and correct variants: built-in ops have none.
bool means_planted(const OpOptions& options, const std::string& word) {
  return options.plugin_ops.empty() && is_pattern(word) && op_of(word).find('.') != std::string_view::npos;
}

/// The ops among which a pattern looks.
std::vector<const OpDef*> ops_for(const OpOptions& options, const std::string& word) {
  if (!means_planted(options, word)) return ops_in_scope(options);
  std::vector<const OpDef*> out;
  for (const checks::PlantedOp& planted : checks::planted_ops()) out.push_back(&planted.op);
  for (const checks::Cheat& cheat : checks::cheats()) out.push_back(&cheat.planted.op);
  for (const checks::zoo::Specimen& specimen : checks::zoo::specimens())
    if (checks::find_op(specimen.name()) == &specimen.op) out.push_back(&specimen.op);  // each name once
  return out;
}

/// The op of that exact name, or null; planted ones too where the built-in ops are meant.
const OpDef* find_in_scope(const OpOptions& options, const std::string& name) {
  if (options.plugin_ops.empty()) return checks::find_op(name);
  for (const OpDef* op : options.plugin_ops)
    if (op->signature.name == name) return op;
  return nullptr;
}

/// An op that a word names, and its variants where these are asked for.
std::vector<const OpDef*> with_variants(const OpOptions& options, const OpDef& op) {
  std::vector<const OpDef*> out{&op};
  if (!options.variants) return out;
  for (const OpDef* other : options.plugin_ops)
    if (other->signature.name.starts_with(op.signature.name + ".")) out.push_back(other);
  return out;
}

[[noreturn]] void fail_op(const OpOptions& options, const std::string& word) {
  std::vector<std::string> names;
  std::string list;
  for (const OpDef* op : ops_in_scope(options)) {
    names.push_back(op->signature.name);
    list += (list.empty() ? "" : ", ") + op->signature.name;
  }
  if (options.plugin_ops.empty() && word.find('.') != std::string::npos)
    for (const checks::PlantedOp& planted : checks::planted_ops()) names.push_back(planted.op.signature.name);
  if (options.plugin_ops.empty() && word.find('.') != std::string::npos)
    for (const checks::Cheat& cheat : checks::cheats()) names.push_back(cheat.planted.op.signature.name);
  if (options.plugin_ops.empty() && word.find('.') != std::string::npos)
    for (const checks::zoo::Specimen& specimen : checks::zoo::specimens()) names.push_back(specimen.name());
  throw UsageError(
      "got unknown op '" + word + "'" + did_you_mean(word, names) + ", want one of " + list +
      ", a case name, or a pattern with * and ?" +
      (options.plugin_ops.empty() ? "; for an op of your own its library stands first: ./libmy_op.so" : ""));
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
    return at_standard_shape(signature, call, 0) || at_standard_shape(signature, call, 1) ||
           at_standard_shape(signature, call, 2);
  for (const auto& [symbol, extent] : filter.extents)
    if (const auto found = call.dims.find(symbol); found != call.dims.end()) found->second = extent;
  return !signature.valid || signature.valid(call.dims, call.attributes);
}

/// Collects cases, each once.
class Collector {
 public:
  Collector(const CaseOptions& options, Selection& selection) : options_(options), selection_(selection) {}

  /// The generated cases of an op that `pattern` matches by op or case name.
  void add_generated(const OpDef& op, const std::string& pattern) {
    const OpSignature& signature = op.signature;
    const bool all = matches(pattern, signature.name);
    for (const Dtype storage : signature.precision.storage) {
      if (!admits(storage)) continue;
      const std::size_t before = selection_.cases.size();
      for (std::uint64_t i = 0; i < options_.seeds; ++i) {
        for (OpCall& call : calls_of(signature, storage, options_.first_seed + i))
          if (admit_shape(options_.shapes, signature, call) && (all || matches(pattern, call.str(signature))))
            add({&op, std::move(call)});
        if (i == 0) require_fitting(before + (selection_.cases.size() - before) * options_.seeds);
      }
    }
    // Of a built-in op only where it is asked for by name.
    if (const OpDef* const in_fp64 = checks::op_in_fp64(op); in_fp64 != nullptr && !options_.dtypes.empty())
      add_generated(*in_fp64, pattern);
  }

  void add(checks::Case item) {
    if (!admits(item.call.storage)) return;
    if (names_.insert(item.call.str(item.op->signature)).second) selection_.cases.push_back(std::move(item));
  }

 private:
  std::vector<OpCall> calls_of(const OpSignature& signature, Dtype storage, std::uint64_t seed) const {
    const ShapeFilter& shapes = options_.shapes;
    return shapes.kind == ShapeFilter::Kind::ranges
               ? checks::cases_of_extents(signature, storage, shapes.ranges, shapes.extents, seed)
               : checks::cases_of(signature, storage, options_.set, seed);
  }

  /// Cases are listed before the first is run: minutes and gigabytes of them would look like a program that hangs.
  void require_fitting(std::uint64_t cases) const {
    constexpr std::uint64_t kMost = 2'000'000;
    if (cases > kMost)
      throw UsageError("[check] --seeds, got " + std::to_string(options_.seeds) + ", which makes more than " +
                       grouped(kMost) + " cases, want fewer (a further run begins where --seed says)");
  }
  bool admits(Dtype storage) const {
    return options_.dtypes.empty() ||
           std::find(options_.dtypes.begin(), options_.dtypes.end(), storage) != options_.dtypes.end();
  }

  const CaseOptions& options_;
  Selection& selection_;
  std::set<std::string> names_;
};

}  // namespace

bool is_variant(const OpDef& op) { return !op.plugin.empty() && op.signature.name.find('.') != std::string::npos; }

std::vector<const OpDef*> ops_in_scope(const OpOptions& options) {
  std::vector<const OpDef*> out;
  for (const OpDef* op : options.plugin_ops)
    if (options.variants || !is_variant(*op)) out.push_back(op);
  if (!options.plugin_ops.empty()) return out;
  for (const OpDef& op : checks::all_ops()) out.push_back(&op);
  return out;
}

checks::Case parse_case(const CaseOptions& options, const std::string& text) {
  const std::string name(op_of(text));
  const OpDef* op = find_in_scope(options, name);
  if (op == nullptr) fail_op(options, name);
  return as_usage([&] {
    checks::Case out{op, parse_call(text, op->signature)};
    out.call.data = options.call_data;
    if (const OpDef* const in_fp64 = checks::op_in_fp64(*op); in_fp64 != nullptr && out.call.storage == Dtype::fp64)
      out.op = op = in_fp64;
    const bool real = checks::is_real_range(out.call.range);
    if (real && !op->plugin.empty())
      throw Error("[case name] got a range of a real run in '" + text +
                  "', want one of the generator: the nets call built-in ops");
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
  });
}

std::vector<const checks::OpDef*> select_ops(const OpOptions& options) {
  const std::vector<std::string>& words = options.words;
  std::vector<const OpDef*> out;
  std::set<std::string> taken;
  const std::vector<std::string> patterns = words.empty() ? std::vector<std::string>{"*"} : words;
  for (const std::string& word : patterns) {
    std::vector<const OpDef*> found;
    if (const OpDef* exact = find_in_scope(options, word))
      found = with_variants(options, *exact);
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
std::vector<const OpDef*> ops_of(const CaseOptions& options, const std::string& word) {
  if (const OpDef* op = find_in_scope(options, word)) return with_variants(options, *op);
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
void add_real(const CaseOptions& options, const std::string& word, Collector& collector) {
  const std::vector<const OpDef*> ops = ops_of(options, word);
  if (ops.empty()) return;
  constexpr Dtype kStorage[] = {Dtype::fp32, Dtype::fp16, Dtype::bf16};
  for (checks::Case& item : checks::real_cases(ops, kStorage, steps_of(options.set), options.call_data))
    if (matches(word, item.op->signature.name) || matches(word, item.call.str(item.op->signature)))
      collector.add(std::move(item));
}

/// The ops that a selector means by their names; all that it looks among for a pattern of case names.
std::vector<const OpDef*> meant_ops(const CaseOptions& options, const std::string& word) {
  const std::vector<const OpDef*> all = ops_of(options, word);
  std::vector<const OpDef*> out;
  for (const OpDef* op : all)
    if (matches(std::string(op_of(word)), op->signature.name)) out.push_back(op);
  return out.empty() ? all : out;
}

/// Every letter is near to every other: of these, only one in the other case.
std::string nearest_symbol(const std::string& symbol, std::vector<std::string> known) {
  if (symbol.size() == 1)
    std::erase_if(known, [&](const std::string& other) {
      return other.size() != 1 || ((other.front() ^ symbol.front()) & ~0x20) != 0;
    });
  return did_you_mean(symbol, known);
}

/// Extents for a dimension that no selected op has would be ignored.
void require_symbols(const CaseOptions& options, const std::vector<std::string>& words) {
  std::vector<std::string> known;
  std::string list;
  bool generated = false;
  for (const std::string& word : words)
    for (const OpDef* op : meant_ops(options, word)) {
      generated = true;
      for (const DimSpec& dim : op->signature.dims)
        if (std::find(known.begin(), known.end(), dim.symbol) == known.end()) {
          known.push_back(dim.symbol);
          list += (list.empty() ? "" : ", ") + dim.symbol;
        }
    }
  std::vector<std::string> asked;
  for (const auto& [symbol, extent] : options.shapes.extents) asked.push_back(symbol);
  for (const auto& [symbol, range] : options.shapes.ranges) asked.push_back(symbol);
  for (const std::string& symbol : asked)
    if (generated && std::find(known.begin(), known.end(), symbol) == known.end())
      throw UsageError(fmt::format("[--shapes] got '{}'{}, want a dimension of what is selected: {}", symbol,
                                   nearest_symbol(symbol, known), list));
}

/// The extents nearest to one that an op refuses: "6 and 8"; empty if there are none in reach.
std::string nearest_extents(const OpSignature& signature, OpCall call, const std::string& symbol) {
  constexpr std::int64_t kReach = 4096;
  const std::int64_t asked = call.dims.at(symbol);
  std::string out;
  for (const int step : {-1, 1})
    for (std::int64_t k = 1; k <= kReach && asked + step * k >= 0; ++k) {
      call.dims[symbol] = asked + step * k;
      if (!signature.valid(call.dims, call.attributes)) continue;
      out += (out.empty() ? "" : " and ") + std::to_string(asked + step * k);
      break;
    }
  return out;
}

/// Why the extents of --shapes leave no case of an op, for those ops that they leave none of.
std::string refused_extents(const CaseOptions& options) {
  std::string out;
  const std::vector<std::string> words = options.words.empty() ? std::vector<std::string>{"*"} : options.words;
  for (const std::string& word : words)
    for (const OpDef* op : meant_ops(options, word)) {
      const OpSignature& signature = op->signature;
      const std::vector<OpCall> calls =
          checks::cases_of(signature, signature.precision.storage.front(), checks::CaseSet::quick, 1);
      if (!signature.valid || calls.empty()) continue;
      OpCall all = calls.front();
      if (admit_shape(options.shapes, signature, all)) continue;
      std::string why;
      for (const auto& [symbol, extent] : options.shapes.extents) {
        OpCall one = calls.front();
        if (!one.dims.contains(symbol)) continue;
        one.dims[symbol] = extent;
        if (signature.valid(one.dims, one.attributes)) continue;
        const std::string nearest = nearest_extents(signature, one, symbol);
        why += (why.empty() ? "" : "; ") + signature.name + " takes no " + symbol + " = " + std::to_string(extent) +
               (nearest.empty() ? "" : ", the nearest that it takes: " + nearest);
      }
      out += "ampcheck: [--shapes] " + (why.empty() ? signature.name + " does not take these extents together" : why) +
             "\n";
    }
  return out;
}

/// Which storage types the selected ops have, for those that have none of --dtype.
std::string undeclared_types(const CaseOptions& options) {
  const auto list_of = [](const std::vector<Dtype>& types) {
    std::string out;
    for (const Dtype dtype : types) out += (out.empty() ? "" : ", ") + std::string(name(dtype));
    return out;
  };
  std::string out;
  for (const std::string& word : options.words) {
    if (is_pattern(word)) continue;
    const OpDef* const op = find_in_scope(options, std::string(op_of(word)));
    if (op == nullptr) continue;
    std::vector<Dtype> storage = op->signature.precision.storage;
    if (checks::op_in_fp64(*op) != nullptr) storage.push_back(Dtype::fp64);
    if (std::ranges::any_of(options.dtypes, [&](Dtype d) { return std::ranges::count(storage, d) > 0; })) continue;
    if (!options.dtypes.empty())
      out += "ampcheck: [--dtype] " + op->signature.name + " is not declared for " + list_of(options.dtypes) +
             ", but for " + list_of(storage) + "\n";
  }
  return out;
}

}  // namespace

Selection select_cases(const CaseOptions& given) {
  if (!given.inputs.empty()) return cases_at_inputs(given);
  CaseOptions options = given;
  open_data(options);
  Selection selection;
  Collector collector(options, selection);
  const std::vector<std::string> words = options.words.empty() ? std::vector<std::string>{"*"} : options.words;
  require_symbols(options, words);
  for (const std::string& word : words) {
    const std::vector<const OpDef*> ops = ops_of(options, word);
    if (ops.empty())
      collector.add(parse_case(options, word));  // an unknown op is told from a bad case name there
    else if (options.real != RealTensors::only)
      for (const OpDef* op : ops) collector.add_generated(*op, word);
  }
  if (!options.plugin_ops.empty()) return selection;  // the nets call built-in ops alone
  // Their shapes are those of the nets.
  if (options.real == RealTensors::off ||
      (options.real == RealTensors::found && options.shapes.kind != ShapeFilter::Kind::all))
    return selection;
  try {
    for (const std::string& word : words) add_real(options, word, collector);
  } catch (const EnvironmentError& error) {
    if (options.real != RealTensors::found || !options.data.empty()) throw;
    selection.notes.push_back(std::string("no tensors of real runs: ") + error.what());
  }
  return selection;
}

std::string nothing_selected(const CaseOptions& options) {
  std::string words;
  for (const std::string& word : options.words) words += " '" + word + "'";
  return "ampcheck: nothing selected by" + (words.empty() ? std::string(" these options") : words) +
         " (ampcheck list --cases shows all case names)\n" + undeclared_types(options) +
         (options.shapes.kind == ShapeFilter::Kind::extents ? refused_extents(options) : "");
}

}  // namespace ampcheck::tools
