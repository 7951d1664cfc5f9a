// SPDX-License-Identifier: Apache-2.0
// Touches neither kernels nor CUDA, so that it starts at once.
#include <fmt/format.h>

#include <algorithm>

#include "checks/models/real_data.h"
#include "checks/zoo/cheats.h"
#include "checks/zoo/planted.h"
#include "checks/zoo/zoo.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/commands/wanting.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

std::string input_text(const TensorSpec& spec) {
  std::string dims;
  for (const std::string& symbol : OpSignature::symbols(spec)) dims += (dims.empty() ? "" : ",") + symbol;
  return fmt::format("{}[{}]{}", spec.name, dims, spec.optional ? "?" : "");
}

std::string inputs_text(const OpSignature& signature) {
  std::string out;
  for (const TensorSpec& spec : signature.inputs) out += (out.empty() ? "" : " ") + input_text(spec);
  return out;
}

Json tensor_json(const TensorSpec& spec) {
  return {{"name", spec.name},
          {"dims", OpSignature::symbols(spec)},
          {"optional", spec.optional},
          {"gradient", spec.has_gradient()}};
}

Json op_json(const checks::OpDef& op) {
  const OpSignature& signature = op.signature;
  Json out = {{"op", signature.name},     {"summary", signature.summary}, {"inputs", Json::array()},
              {"outputs", Json::array()}, {"attributes", Json::object()}, {"dtypes", Json::array()},
              {"forms", Json::array()}};
  for (const TensorSpec& spec : signature.inputs) out["inputs"].push_back(tensor_json(spec));
  for (const OutputSpec& spec : signature.outputs) out["outputs"].push_back(spec.name);
  for (const AttributeSpec& spec : signature.attributes)
    std::visit([&](const auto& value) { out["attributes"][spec.name] = value; }, spec.default_value);
  for (const Dtype dtype : signature.precision.storage) out["dtypes"].push_back(name(dtype));
  for (const reference::Form& form : op.forms) out["forms"].push_back(form.name);
  return out;
}

std::string ops_table(const std::vector<const checks::OpDef*>& ops) {
  std::size_t op_width = 2, input_width = 6;
  for (const checks::OpDef* op : ops) {
    op_width = std::max(op_width, op->signature.name.size());
    input_width = std::max(input_width, inputs_text(op->signature).size());
  }
  const Style style = stdout_style();
  std::string out = fmt::format("{}{:<{}}  {:<{}}  what it computes{}\n", style.bold, "op", op_width, "inputs",
                                input_width, style.reset);
  for (const checks::OpDef* op : ops)
    out += fmt::format("{:<{}}  {:<{}}  {}\n", op->signature.name, op_width, inputs_text(op->signature), input_width,
                       op->signature.summary);
  return out;
}

ExitCode list_cases(const ListOptions& options) {
  const Selection selection = select_cases(options);
  if (options.json) {
    Json out = {{"schema", "ampcheck.cases/1"}, {"cases", Json::array()}};
    for (const checks::Case& item : selection.cases) out["cases"].push_back(item.call.str(item.op->signature));
    write_stdout(json_text(out));
  } else {
    std::string out;
    for (const checks::Case& item : selection.cases) out += item.call.str(item.op->signature) + "\n";
    write_stdout(out);
  }
  return selection.cases.empty() ? ExitCode::nothing_ran : ExitCode::passed;
}

ExitCode list_planted(const ListOptions& options) {
  Json out = {{"schema", "ampcheck.planted/1"}, {"ops", Json::array()}};
  std::string text;
  const auto wanted = [&](const std::string& name) {  // by its own name or by its op's
    return options.words.empty() ||
           std::any_of(options.words.begin(), options.words.end(), [&](const std::string& word) {
             return matches(word, name) || matches(word, name.substr(0, name.find('.')));
           });
  };
  const auto add = [&](const checks::PlantedOp& planted) {
    if (!wanted(planted.op.signature.name)) return;
    out["ops"].push_back({{"op", planted.op.signature.name}, {"what", planted.what}, {"code", name(planted.code)}});
    text += fmt::format("{:<28}  {:<7}  {}\n", planted.op.signature.name,
                        planted.code == Code::none ? "correct" : name(planted.code), planted.what);
  };
  for (const checks::PlantedOp& planted : checks::planted_ops()) add(planted);
  for (const checks::Cheat& cheat : checks::cheats()) add(cheat.planted);
  for (const checks::zoo::Specimen& specimen : checks::zoo::specimens()) {
    if (!wanted(specimen.name())) continue;
    out["ops"].push_back({{"op", specimen.name()},
                          {"what", specimen.what},
                          {"defect_class", specimen.defect_class},
                          {"due", specimen.correct() ? "" : name(specimen.due)}});
    text += fmt::format("{:<28}  {:<7}  {}\n", specimen.name(), specimen.correct() ? "correct" : name(specimen.due),
                        specimen.what);
  }
  if (text.empty()) {
    write_stderr(nothing_selected(options));
    return ExitCode::nothing_ran;
  }
  write_stdout(options.json ? json_text(out) : text);
  return ExitCode::passed;
}

std::size_t widest(const std::vector<Evidence>& ops) {
  std::size_t width = 0;
  for (const Evidence& op : ops) width = std::max(width, op.name.size());
  return width;
}

ExitCode list_wanting(const ListOptions& options) {
  const std::vector<Evidence> all = evidence(checks::models::find_data(options.data));
  Json out = {{"schema", "ampcheck.wanting/1"}, {"ops", Json::array()}};
  std::string text;
  for (const Evidence& op : all) {
    const std::vector<std::string> lacks = op.wanting();
    const bool chosen = options.words.empty() || std::any_of(options.words.begin(), options.words.end(),
                                                             [&](const auto& word) { return matches(word, op.name); });
    if (!chosen || lacks.empty()) continue;
    out["ops"].push_back({{"op", op.name},
                          {"wanting", lacks},
                          {"values", op.values},
                          {"defects", op.defects},
                          {"variants", op.variants},
                          {"nets", op.nets}});
    text += fmt::format("{:<{}}  {}\n", op.name, widest(all), fmt::join(lacks, ", "));
  }
  if (text.empty())
    text = "nothing is wanting\n";
  else
    text += "CONTRIBUTING.md says how each is added.\n";
  write_stdout(options.json ? json_text(out) : text);
  return ExitCode::passed;
}

}  // namespace

ExitCode list_command(const ListOptions& options) {
  if (options.wanting) return list_wanting(options);
  if (options.planted) return list_planted(options);
  if (options.cases) return list_cases(options);
  const std::vector<const checks::OpDef*> ops = select_ops(options);
  if (!options.json) {
    write_stdout(ops_table(ops));
    return ExitCode::passed;
  }
  Json out = {{"schema", "ampcheck.list/1"}, {"ops", Json::array()}};
  for (const checks::OpDef* op : ops) out["ops"].push_back(op_json(*op));
  write_stdout(json_text(out));
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
