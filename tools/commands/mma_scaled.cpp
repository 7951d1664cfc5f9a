// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck mma b200 -f FILE` where the vectors have scales (MX, NVFP4): the published model's d, or which F gives that
// of the file.
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "src/rounding.h"
#include "src/tensor_core/vectors.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using namespace tensor_core;

const char* kind_of(const ScaledInstruction& i) {
  return i.kind == ScaledInstruction::Kind::mxf8f6f4 ? "mxf8f6f4" : "mxf4nvf4";
}

std::uint32_t value_of(const ScaledInstruction& i, const Vector& v) {
  return as_usage([&] { return scaled_dot(i, v.a, v.b, v.a_scales, v.b_scales, v.c); });
}

/// F that reports name, the model's first.
std::vector<int> fractions_of(const ScaledInstruction& i) {
  std::vector<int> out = {i.fraction()};
  for (const int other : {25, 34, 35, 36, 37})
    if (other != out[0]) out.push_back(other);
  return out;
}

ExitCode show_values(const ScaledInstruction& i, const Vectors& v, bool as_json) {
  std::string out = fmt::format("# gpu=b200 scaled={} F={}\n", kind_of(i), i.fraction());
  Json values = Json::array();
  const auto list = [&out](const std::vector<std::uint32_t>& codes) {
    for (const std::uint32_t code : codes) out += fmt::format("{:02x} ", code);
    out += "| ";
  };
  for (const Vector& vector : v.all) {
    const std::uint32_t d = value_of(i, vector);
    values.push_back({{"line", vector.line}, {"d", fmt::format("{:08x}", d)}});
    for (const auto* const codes : {&vector.a, &vector.b, &vector.a_scales, &vector.b_scales}) list(*codes);
    out += fmt::format("{:08x} | {:08x}\n", vector.c, d);
  }
  write_stdout(as_json ? json_text({{"schema", "ampcheck.mma/1"},
                                    {"generation", "b200"},
                                    {"scaled", kind_of(i)},
                                    {"fraction", i.fraction()},
                                    {"values", std::move(values)}})
                       : out);
  return ExitCode::passed;
}

}  // namespace

ExitCode mma_scaled(const Vectors& vectors, bool as_json) {
  ScaledInstruction instruction = *vectors.scaled;
  std::int64_t with_d = 0;
  for (const Vector& v : vectors.all) with_d += v.d.has_value();
  if (with_d == 0) return show_values(instruction, vectors, as_json);
  Json tried = Json::array();
  std::optional<int> found;
  std::string out = fmt::format("{} vectors, {}, on b200\n", grouped(with_d), kind_of(instruction));
  for (const int fraction : fractions_of(instruction)) {
    instruction.open_fraction = fraction;
    std::int64_t differ = 0;
    for (const Vector& v : vectors.all) differ += v.d && value_of(instruction, v) != *v.d;
    tried.push_back({{"fraction", fraction}, {"differ", differ}});
    out += fmt::format("  F = {:<20}{} differ\n", fraction, grouped(differ));
    if (differ == 0 && !found) found = fraction;
  }
  out += found ? fmt::format("Every d is that of the model with F = {}.\n", *found)
               : "The model gives these d with none of these F.\n";
  write_stdout(as_json ? json_text({{"schema", "ampcheck.mma/1"},
                                    {"generation", "b200"},
                                    {"scaled", kind_of(instruction)},
                                    {"vectors", with_d},
                                    {"tried", std::move(tried)},
                                    {"explained_by", found ? Json(fmt::format("F = {}", *found)) : Json(nullptr)}})
                       : out);
  return found ? ExitCode::passed : ExitCode::findings;
}

}  // namespace ampcheck::tools
