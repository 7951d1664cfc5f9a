// SPDX-License-Identifier: Apache-2.0
// `ampcheck contract OP`: what the kernel's bits say of its precision contract, and the line to declare it by.
#include "checks/run/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/error.h"
#include "tools/choose/cores_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/workers/runner.h"

namespace ampcheck::tools {

namespace {

using checks::ContractReading;
using checks::OrderReading;
using checks::Reading;

const char* order_name(reference::SumOrder order) {
  switch (order) {
    case reference::SumOrder::sequential: return "one after the other";
    case reference::SumOrder::lanes32: return "32 lanes, then a butterfly";
    case reference::SumOrder::pairwise: return "pairwise";
    case reference::SumOrder::reversed: return "backwards";
  }
  return "";
}

const char* products_name(bool fused) { return fused ? "added by fused multiply-add" : "rounded, then added"; }

/// "10^412 : 1 against bf16", or how little it says.
std::string surety_text(const std::vector<Reading>& readings) {
  if (readings.size() < 2) return "";
  const double surety = ContractReading::surety(readings);
  if (surety < 0.5) return fmt::format("no more likely than {}: these cases do not tell", readings[1].words);
  return fmt::format("10^{:.0f} : 1 against {}", std::min(surety, 1e9), readings[1].words);
}

std::string outside_text(const Reading& reading) {
  return reading.outside == 0 ? "explains every element"
                              : fmt::format("leaves {} elements unexplained", grouped(reading.outside));
}

std::string reading_line(const char* field, const std::vector<Reading>& readings, const char* before = "") {
  if (readings.empty()) return fmt::format("  {:<14}no function of the formula shows in the bits\n", field);
  const auto declared = std::find_if(readings.begin(), readings.end(), [](const Reading& r) { return r.declared; });
  const std::string but = declared != readings.end() && declared != readings.begin() &&
                                  readings.front().likelihood > declared->likelihood + 0.5
                              ? fmt::format("; declared: {}, which {}", declared->words, outside_text(*declared))
                              : "";
  return fmt::format("  {:<14}{}{}: {}; {}{}\n", field, before, readings.front().words, outside_text(readings.front()),
                     surety_text(readings), but);
}

std::string share_of(const ContractReading& r, const OrderReading& o) {
  return fmt::format("{:.0f} %", 100.0 * static_cast<double>(o.equal) / static_cast<double>(r.told));
}

/// Whether products enter their sums rounded; nothing where that does not show.
std::string products_line(const ContractReading& r) {
  const OrderReading& best = r.orders.front();
  const OrderReading* const other = r.best_order(!best.fused);
  if (other == nullptr || other->equal == best.equal) return "";
  return fmt::format("  {:<14}{}: {} ({}: {})\n", "products", products_name(best.fused), share_of(r, best),
                     products_name(other->fused), share_of(r, *other));
}

/// Whether products are those of tensor cores, which have an order of their own.
bool on_cores(const ContractReading& r) {
  return r.cores.found() != nullptr && r.cores.found()->accumulator.core != TensorCore::none;
}

std::string order_lines(const ContractReading& r) {
  if (on_cores(r)) return fmt::format("  {:<14}that of the cores: blocks, k ascending\n", "order");
  if (r.orders.empty()) return "  order         no sum of these cases depends on its order\n";
  const OrderReading& best = r.orders.front();
  const auto share = [&](const OrderReading& o) { return share_of(r, o); };
  const auto other =
      std::find_if(r.orders.begin(), r.orders.end(), [&](const OrderReading& o) { return o.order != best.order; });
  const bool none = 2 * best.equal < r.told;
  if (!none && other != r.orders.end() && other->equal == best.equal)
    return fmt::format("  {:<14}these cases do not tell one from another\n", "order") + products_line(r);
  std::string out =
      fmt::format("  {:<14}{}{}: gives {} of the {} elements that tell bit for bit", "order",
                  none ? "none of those known; nearest: " : "", order_name(best.order), share(best), grouped(r.told));
  if (other != r.orders.end()) out += fmt::format(" ({}: {})", order_name(other->order), share(*other));
  out +=
      none || best.equal * 10 >= r.told * 9 ? "\n" : "; the others may come of other functions or fused operations\n";
  if (none) return out;
  const auto form =
      std::find_if(r.orders.begin(), r.orders.end(), [&](const OrderReading& o) { return o.form != best.form; });
  out += products_line(r);
  if (form != r.orders.end())
    out +=
        fmt::format("  {:<14}'{}' ({} against {} of '{}')\n", "form", best.form, share(best), share(*form), form->form);
  return out;
}

/// Whose products the kernel's are, where the formula has products of matrices.
std::string cores_line(const ContractReading& r) {
  const checks::CoreReadings& cores = r.cores;
  if (cores.all.empty()) return "";
  const auto share = [&](const checks::CoreReading& c) {
    return fmt::format("{:.1f} %", 100.0 * static_cast<double>(c.equal) / static_cast<double>(cores.told));
  };
  const checks::CoreReading& best = cores.all.front();
  const std::string next =
      cores.all.size() < 2 ? "" : fmt::format("; next: {}, {}", cores.all[1].words, share(cores.all[1]));
  if (cores.found() == nullptr && r.explained() && 2 * best.equal < cores.told) return "";  // none of these: said above
  if (cores.found() == nullptr)
    return fmt::format(
        "  {:<14}no accumulator that is known gives all of the {} elements that tell; nearest: {}, {}{}\n", "matmul",
        grouped(cores.told), best.words, share(best), next);
  return fmt::format("  {:<14}{}: gives all of the {} elements that tell bit for bit{}\n", "matmul", best.words,
                     grouped(cores.told), next);
}

/// The constant of ampcheck_op.h.
std::string door_name(const Accumulator& accumulator) {
  std::string out = name(accumulator);  // "bf16", "tensor_core(h100)"
  std::replace(out.begin(), out.end(), '(', '_');
  std::erase(out, ')');
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return "AC_" + out;
}

/// The contract as the C++ and TOML doors have it, the same in both.
std::string paste_lines(const ContractReading& r) {
  const PrecisionContract& c = r.best;
  std::string toml = fmt::format("[contract]\n    accumulate = \"{}\"\n", name(c.accumulate));
  std::string cpp = fmt::format("op.accumulate({})", door_name(c.accumulate));
  if (c.flushes_subnormals) {
    toml += "    flushes_subnormals = true\n";
    cpp += ".flushes_subnormals()";
  }
  if (c.atomics) {
    toml += "    atomics = true\n";
    cpp += ".atomics()";
  }
  if (r.functions_explain() && c.math.name == "CUDA") {
    toml += "    math = \"cuda\"\n";
    cpp += ";\n    op.math().cuda = 1";
  }
  if (c.math.name.ends_with(" ulp")) {
    std::string ulps;
    const std::string number = c.math.name.substr(0, c.math.name.find(' '));
    for (const std::string& function : r.used) {
      ulps += fmt::format("{}{} = {}", ulps.empty() ? "" : ", ", function, number);
      cpp += fmt::format(";\n    op.math().{} = {}", function, number);
    }
    toml += fmt::format("    math = {{ {} }}  # or what your functions' documentation says\n", ulps);
  }
  return fmt::format(
      "  paste into the op (C++), under which every element lies inside its interval\n    {};\n  or into its TOML "
      "file\n    {}",
      cpp, toml);
}

/// A tensor that something explains which is no accumulator, or that nothing does.
std::string tensor_line(const ContractReading& r, const checks::TensorReading& t) {
  if (t.unexplained > 0)
    return fmt::format("  {:<14}no contract explains it: {} elements lie outside whatever was tried, as in '{}'\n",
                       t.tensor, grouped(t.unexplained), t.first_unexplained.empty() ? r.op : t.first_unexplained);
  if (t.departure.empty()) return reading_line(t.tensor.c_str(), t.accumulators, "accumulates in ");
  return fmt::format("  {:<14}{}: explains every element; 10^{:.0f} : 1 against {}\n", t.tensor, t.departure,
                     std::min(t.departure_surety, 1e9), t.next);
}

/// The lines to paste, or why there are none.
std::string advice(const ContractReading& r) {
  if (r.can_be_declared()) return paste_lines(r);
  if (!r.explained())
    return "  no line to paste: no accumulator, function, flushing, truncation or shorter intermediate explains these "
           "bits. Something else is wrong:\n"
           "  ampcheck check says what\n";
  return "  no line to paste: a contract has no word for that. Change the kernel, or keep what is shorter as a saved "
         "tensor of that type\n";
}

/// Where no set of functions explains the bits, none is named as theirs.
std::string functions_line(const ContractReading& r) {
  if (r.functions.empty() || r.functions_explain()) return reading_line("functions", r.functions);
  const Reading& nearest = r.functions.front();
  return fmt::format("  {:<14}none of those known explains the bits; nearest: {}, which {}\n", "functions",
                     nearest.words, outside_text(nearest));
}

std::string text_of(const ContractReading& r, const Style& style) {
  std::string out = fmt::format("{}{}{} in {}: {} cases, {} elements\n", style.bold, r.op, style.reset, name(r.storage),
                                r.cases, grouped(r.elements));
  for (const checks::TensorReading& t : r.tensors) out += tensor_line(r, t);
  out += cores_line(r);
  out += reading_line("subnormals", r.subnormals) + functions_line(r);
  out += order_lines(r);
  for (const auto& [tensor, shorter] : r.narrow)
    out += fmt::format("  {:<14}every number of {} is one of {}: it is rounded to that before it is stored\n", "stored",
                       tensor, name(shorter));
  out += fmt::format("  {:<14}{}\n", "repeats", r.repeats ? "the same bits" : "differ from call to call: atomics");
  return out + advice(r);
}

Json readings_json(const std::vector<Reading>& readings) {
  Json out = Json::array();
  for (const Reading& r : readings)
    out.push_back({{"value", r.words},
                   {"log10_likelihood", json_number(r.likelihood)},
                   {"outside", r.outside},
                   {"declared", r.declared}});
  return out;
}

Json json_of(const ContractReading& r) {
  Json orders = Json::array(), narrow = Json::array(), tensors = Json::array(), cores = Json::array();
  for (const checks::CoreReading& c : r.cores.all) cores.push_back({{"value", c.words}, {"equal", c.equal}});
  for (const checks::TensorReading& t : r.tensors)
    tensors.push_back({{"tensor", t.tensor},
                       {"readings", readings_json(t.accumulators)},
                       {"departure", t.departure},
                       {"log10_surety", json_number(t.departure_surety)},
                       {"unexplained", t.unexplained}});
  for (const OrderReading& o : r.orders)
    orders.push_back({{"form", o.form},
                      {"order", order_name(o.order)},
                      {"accumulate", name(o.accumulate)},
                      {"fused", o.fused},
                      {"equal", o.equal}});
  for (const auto& [tensor, shorter] : r.narrow) narrow.push_back({{"tensor", tensor}, {"fits", name(shorter)}});
  return {{"op", r.op},
          {"dtype", name(r.storage)},
          {"cases", r.cases},
          {"elements", r.elements},
          {"accumulate", std::move(tensors)},
          {"best_accumulate", name(r.best.accumulate)},
          {"subnormals", readings_json(r.subnormals)},
          {"functions", readings_json(r.functions)},
          {"told", r.told},
          {"orders", std::move(orders)},
          {"cores", std::move(cores)},
          {"cores_told", r.cores.told},
          {"narrow", std::move(narrow)},
          {"repeats", r.repeats},
          {"explained", r.explained()},
          {"declarable", r.can_be_declared()}};
}

}  // namespace

ExitCode contract_command(const ContractOptions& given) {
  ContractOptions options = given;
  put_on_cores(options, options.accumulate, Device::cpu, Declares::no);
  if (options.accumulate.empty()) take_only_op(options);
  if (options.words.empty()) throw UsageError("[contract] got no op, want one (ampcheck list)");
  take_kernels_apart(options.plugin_ops, options);
  std::vector<ContractReading> found;
  for (const checks::OpDef* op : select_ops(options)) {
    if (!op->plugin.empty()) require_certified(*op);
    for (const Dtype storage : op->signature.precision.storage) {
      if (!options.dtypes.empty() &&
          std::find(options.dtypes.begin(), options.dtypes.end(), storage) == options.dtypes.end())
        continue;
      if (op->forms.empty())
        throw UsageError("[contract] got '" + op->signature.name +
                         "', which has no formula, want an op with one: without, nothing says what its bits should be");
      found.push_back(checks::read_contract(*op, storage, options.seed));
    }
  }
  if (found.empty()) {
    write_stderr("ampcheck: nothing selected: these ops have none of the storage types\n");
    return ExitCode::nothing_ran;
  }
  if (options.json) {
    Json json = {{"schema", "ampcheck.contract/1"}, {"ops", Json::array()}};
    for (const ContractReading& r : found) json["ops"].push_back(json_of(r));
    write_stdout(json_text(json));
  } else {
    for (std::size_t i = 0; i < found.size(); ++i)
      write_stdout((i == 0 ? "" : "\n") + text_of(found[i], stdout_style()));
  }
  return std::all_of(found.begin(), found.end(), [](const ContractReading& r) { return r.can_be_declared(); })
             ? ExitCode::passed
             : ExitCode::findings;
}

}  // namespace ampcheck::tools
