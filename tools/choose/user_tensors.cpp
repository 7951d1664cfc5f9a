// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/user_tensors.h"

#include <optional>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "src/error.h"
#include "tools/choose/plugins.h"

namespace ampcheck::tools {

void open_data(CaseOptions& options) {
  options.call_data = options.data.empty() ? nullptr : checks::data_of_nets(options.data);
  if (options.inputs.empty()) return;
  try {
    options.call_data = checks::data_of_file(read_tensors(options.inputs),
                                             options.call_data == nullptr ? nullptr : options.call_data->runs);
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::string with_fields(const OpCall& call, const OpSignature& signature, const std::string& word) {
  std::string text = call.str(signature);
  const std::size_t open = word.find('(');
  if (open == std::string::npos) return text;
  if (word.back() != ')') throw UsageError("[case name] got '" + word + "', want op(key=value,...)");
  const std::string fields = word.substr(open + 1, word.size() - open - 2);
  if (fields.empty()) return text;
  text.pop_back();
  return text + "," + fields + ")";
}

Selection cases_at_inputs(const CaseOptions& given) {
  CaseOptions options = given;
  take_only_op(options);
  if (options.words.size() != 1)
    throw UsageError("[--inputs] got " + std::to_string(options.words.size()) +
                     " selectors, want one op, as: ampcheck check softmax --inputs FILE");
  if (options.shapes.kind != ShapeFilter::Kind::all || options.set != checks::CaseSet::standard ||
      options.real == RealTensors::only || options.real == RealTensors::on)
    throw UsageError(
        "[--inputs] got --shapes, --regimes or --real too, want none of them: the file says shapes and values");
  open_data(options);
  const std::string& word = options.words.front();
  CaseOptions only = options;
  only.words = {std::string(op_of(word))};
  const std::vector<const checks::OpDef*> ops = select_ops(only);
  if (ops.size() != 1) throw UsageError("[--inputs] got '" + word + "', want one op");
  Selection out;
  const std::vector<std::optional<Dtype>> storages =
      options.dtypes.empty() ? std::vector<std::optional<Dtype>>{std::nullopt}
                             : std::vector<std::optional<Dtype>>(options.dtypes.begin(), options.dtypes.end());
  try {
    for (const auto& storage : storages) {
      const checks::OpDef& op = checks::op_for_file(*ops.front(), *options.call_data->file, storage);
      for (std::uint64_t i = 0; i < options.seeds; ++i) {
        OpCall call = checks::file_call(op, options.call_data, storage);
        call.seed = options.first_seed + i;
        out.cases.push_back(parse_case(options, with_fields(call, op.signature, word)));
      }
    }
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  const checks::OpDef& op = *out.cases.front().op;
  std::string unused, missing;
  for (const std::string& name : checks::unused_inputs(op, *options.call_data->file))
    unused += (unused.empty() ? "'" : ", '") + name + "'";
  if (!unused.empty()) out.notes.push_back("not used of '" + options.inputs + "': " + unused);
  for (const OutputSpec& output : op.signature.outputs)
    if (!checks::file_cotangent(out.cases.front().call, output.name))
      missing += (missing.empty() ? "'" : ", '") + gradient_name(output.name) + "'";
  if (!missing.empty() && op.kernel.backward)
    out.notes.push_back("no cotangent " + missing + " in '" + options.inputs + "': generated ones are used");
  return out;
}

}  // namespace ampcheck::tools
