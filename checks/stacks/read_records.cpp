// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Readers of text: torchtitan's numerics capture and Hugging Face's DebugUnderflowOverflow.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "checks/stacks/op_records.h"
#include "src/error.h"

namespace ampcheck::checks::stacks {

std::optional<std::string_view> next_line(std::string_view text, std::size_t& at) {
  if (at >= text.size()) return std::nullopt;
  const std::size_t end = std::min(text.find('\n', at), text.size());
  std::string_view line = text.substr(at, end - at);
  at = end + 1;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::optional<double> number_in(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return text.find("e-") != std::string_view::npos ? 0 : HUGE_VAL;
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::string short_dtype(std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos) name.remove_prefix(dot + 1);
  if (name == "bfloat16" || name == "BFloat16" || name == "bf16") return "bf16";
  if (name == "float16" || name == "half" || name == "Float16" || name == "fp16") return "fp16";
  if (name == "float32" || name == "float" || name == "Float32" || name == "fp32") return "fp32";
  return "";
}

std::string shown(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{:.6g}", value);
}

bool TensorNumbers::not_finite() const {
  for (const auto& number : {least, largest, mean, norm})
    if (number && !std::isfinite(*number)) return true;
  const auto value = number_in(hash);
  return value && !std::isfinite(*value);
}

std::optional<double> TensorNumbers::amax() const {
  if (!largest) return std::nullopt;
  return sizes || !least ? std::fabs(*largest) : std::max(std::fabs(*least), std::fabs(*largest));
}

namespace {

/// "a, b" or "a;b" in parts.
std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    out.emplace_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

/// One "  Key: value" line of a torchtitan block.
void take_field(std::string_view key, std::string_view value, OpRecord& op) {
  if (op.outputs.empty()) op.outputs.push_back({.name = "output"});
  TensorNumbers& out = op.outputs.front();
  if (key == "Shape") {
    const std::size_t dtype = value.find(", Dtype: ");
    out.shape = std::string(value.substr(0, dtype));
    if (dtype != std::string_view::npos) out.dtype = short_dtype(value.substr(dtype + 9));
  } else if (key == "L2 norm") {
    out.norm = number_in(value);
  } else if (key == "Min") {
    out.least = number_in(value);
  } else if (key == "Max") {
    out.largest = number_in(value);
  } else if (key == "Mean") {
    out.mean = number_in(value);
  } else if (key == "Output hash") {
    out.hash = std::string(value);
  } else if (key == "Input hashes") {
    for (std::string& hash : parts_of(value, ',')) {
      op.inputs.push_back({.name = "input." + std::to_string(op.inputs.size())});
      op.inputs.back().hash = std::move(hash);
    }
  } else if (key == "Input producers") {
    const std::vector<std::string> producers = parts_of(value, ';');
    for (std::size_t i = 0; i < std::min(producers.size(), op.inputs.size()); ++i) op.inputs[i].producer = producers[i];
  } else if (key == "Location") {
    op.where = std::string(value);
  } else if (key == "Phase") {
    op.backward = value == "backward";
  }
}

}  // namespace

std::optional<Recording> read_torchtitan(std::string_view text, const std::string& path) {
  if (!text.starts_with("Total captured activations:")) return std::nullopt;
  Recording out{path, "torchtitan", "7 significant digits", 1e-6, {}, {}};
  std::size_t at = 0;
  std::int64_t number = 0;
  double promised = 0;
  while (const auto whole = next_line(text, at)) {
    ++number;
    const std::string_view line = trimmed(*whole);
    if (number == 1) promised = number_in(line.substr(line.find(':') + 1)).value_or(0);
    if (whole->starts_with("[") && line.ends_with("]")) {
      out.ops.push_back({.name = std::string(line.substr(1, line.size() - 2)), .line = number});
      continue;
    }
    const std::size_t colon = line.find(": ");
    if (out.ops.empty() || !whole->starts_with("  ") || colon == std::string_view::npos) continue;
    take_field(line.substr(0, colon), line.substr(colon + 2), out.ops.back());
  }
  if (static_cast<double>(out.ops.size()) < promised)
    out.notes.push_back(
        fmt::format("the file ends early: {} of the {} ops that its first line promises", out.ops.size(), promised));
  out.notes.emplace_back("a hash is the L1 norm in 7 digits: other numbers of the same norm look alike");
  return out;
}

namespace {

/// "0.00e+00      inf output" -> 0, inf, "output"; false for another line.
bool take_frame_line(std::string_view line, double& least, double& largest, std::string& what) {
  if (line.size() < 19) return false;
  const auto low = number_in(line.substr(0, 8)), high = number_in(line.substr(8, 9));
  if (!low || !high || line[17] != ' ') return false;
  least = *low;
  largest = *high;
  what = std::string(trimmed(line.substr(18)));
  return true;
}

}  // namespace

std::optional<Recording> read_overflow_frames(std::string_view text, const std::string& path) {
  if (text.find("abs min  abs max  metadata") == std::string_view::npos) return std::nullopt;
  Recording out{path, "DebugUnderflowOverflow of Hugging Face", "3 significant digits", 5e-3, {}, {}};
  std::size_t at = 0;
  std::int64_t number = 0;
  bool inside = false;
  while (const auto line = next_line(text, at)) {
    ++number;
    if (line->starts_with("abs min  abs max  metadata")) {
      inside = true;
      continue;
    }
    double least = 0, largest = 0;
    std::string what;
    if (!inside || trimmed(*line).empty() || trimmed(*line) == "[...]") continue;
    if (take_frame_line(*line, least, largest, what)) {
      if (out.ops.empty()) continue;
      TensorNumbers numbers{.name = what, .least = least, .largest = largest, .sizes = true};
      OpRecord& op = out.ops.back();
      (what.starts_with("output") ? op.outputs : op.inputs).push_back(std::move(numbers));
    } else if (line->starts_with("                 ") && line->find(" None ") == std::string_view::npos &&
               line->find("not a tensor") == std::string_view::npos) {
      out.ops.push_back({.name = std::string(trimmed(*line)), .line = number});
    }
  }
  if (out.ops.empty()) throw Error("[diagnose] '" + path + "', got the header of DebugUnderflowOverflow and no frame");
  out.notes.emplace_back(
      "only forward passes of modules are recorded, the last 21 of them; what happens between modules "
      "and in the backward is not");
  return out;
}

std::optional<Recording> read_records(std::string_view text, const std::string& path) {
  for (const auto reader : {read_msprobe, read_torchtitan, read_overflow_frames})
    if (auto out = reader(text, path)) return out;
  return std::nullopt;
}

}  // namespace ampcheck::checks::stacks
