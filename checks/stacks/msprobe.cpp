// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// msprobe's dump.json: of each API or module the dtype, shape, Max, Min, Mean and Norm of its tensors.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checks/stacks/op_records.h"
#include "src/error.h"

namespace ampcheck::checks::stacks {

namespace {

using Json = nlohmann::ordered_json;

/// Python writes NaN and Infinity bare, which is no JSON: they become texts.
std::string with_texts(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\\' && quoted) {
      out += c;
      if (++at < text.size()) out += text[at];
      continue;
    }
    if (c == '"') quoted = !quoted;
    const std::string_view rest = text.substr(at);
    std::string_view word;
    if (!quoted)
      for (const std::string_view one : {"NaN", "-Infinity", "Infinity"})
        if (word.empty() && rest.starts_with(one)) word = one;
    if (word.empty()) {
      out += c;
      continue;
    }
    out += word == "NaN" ? "\"nan\"" : word == "Infinity" ? "\"inf\"" : "\"-inf\"";
    at += word.size() - 1;
  }
  return out;
}

std::optional<double> number_of(const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  return found->is_string() ? number_in(found->get<std::string>()) : std::nullopt;
}

std::string text_in(const Json& tensor, const char* key) {
  const auto found = tensor.find(key);
  return found != tensor.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Tensors of an argument: itself, or those in a list of them.
void take_tensors(const Json& value, const std::string& name, std::vector<TensorNumbers>& out, bool& files) {
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) take_tensors(value[i], name + "." + std::to_string(i), out, files);
    return;
  }
  if (!value.is_object()) return;
  if (!value.contains("dtype")) {  // a dictionary of them
    for (auto item = value.begin(); item != value.end(); ++item)
      take_tensors(*item, name + "." + item.key(), out, files);
    return;
  }
  TensorNumbers tensor{.name = name, .dtype = short_dtype(text_in(value, "dtype"))};
  if (const auto shape = value.find("shape"); shape != value.end()) tensor.shape = shape->dump();
  tensor.largest = number_of(value, "Max");
  tensor.least = number_of(value, "Min");
  tensor.mean = number_of(value, "Mean");
  tensor.norm = number_of(value, "Norm");
  tensor.hash = text_in(value, "md5");
  files |= !text_in(value, "data_name").empty();
  if (!tensor.dtype.empty() || tensor.largest) out.push_back(std::move(tensor));
}

}  // namespace

std::optional<Recording> read_msprobe(std::string_view text, const std::string& path) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') return std::nullopt;
  const Json json = Json::parse(with_texts(text), nullptr, false);
  if (!json.is_object() || !json.contains("data") || !json.contains("task") || !json["data"].is_object())
    return std::nullopt;
  Recording out{path, "msprobe", "all digits of fp32", 0, {}, {}};
  bool files = false;
  const Json& data = json["data"];
  for (auto item = data.begin(); item != data.end(); ++item) {
    if (!item->is_object()) continue;
    OpRecord op{.name = item.key()};
    op.backward = op.name.ends_with(".backward") || op.name.find(".backward.") != std::string::npos;
    for (const char* const key : {"input_args", "input_kwargs", "input", "parameters"})
      if (item->contains(key)) take_tensors((*item)[key], key[0] == 'p' ? "parameter" : "input", op.inputs, files);
    if (item->contains("output")) take_tensors((*item)["output"], "output", op.outputs, files);
    if (!op.outputs.empty()) out.ops.push_back(std::move(op));
  }
  if (out.ops.empty())
    throw Error("[diagnose] '" + path + "', got a dump.json of msprobe without an op that has an output");
  if (files)
    out.notes.emplace_back(
        "its tensors (dump_tensor_data) are read as two stacks once they are safetensors; here are "
        "their statistics");
  out.notes.emplace_back(
      "by default msprobe computes Mean and Norm in the tensor's own type: they may be off, or "
      "infinite, where the tensor is not");
  return out;
}

}  // namespace ampcheck::checks::stacks
