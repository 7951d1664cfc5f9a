// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck mma GENERATION`: the instructions of its tensor cores, and what they compute of given vectors.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <string_view>
#include <utility>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/tensor_core/product.h"
#include "src/tensor_core/vectors.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using namespace tensor_core;

constexpr Input kInputs[] = {Input::fp16, Input::bf16, Input::tf32, Input::e4m3, Input::e5m2};
constexpr Output kOutputs[] = {Output::fp32, Output::fp16};
constexpr Unit kUnits[] = {Unit::mma, Unit::wgmma, Unit::tcgen05};

/// GPUs whose tensor cores are those of a generation, as they are called.
constexpr std::pair<std::string_view, TensorCore> kGpus[] = {
    {"t4", TensorCore::turing}, {"a2", TensorCore::a100},   {"a10", TensorCore::a100},   {"a30", TensorCore::a100},
    {"a40", TensorCore::a100},  {"l4", TensorCore::ada},    {"l40", TensorCore::ada},    {"l40s", TensorCore::ada},
    {"h20", TensorCore::h100},  {"h800", TensorCore::h100}, {"gh200", TensorCore::h100}, {"gb200", TensorCore::b200}};

TensorCore generation_of(const MmaOptions& o) {
  std::string word = o.generation;
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [gpu, core] : kGpus)
    if (word == gpu) return core;
  Accumulator found;
  if (!find_accumulator("tensor_core(" + word + ")", found) || found.core == TensorCore::any)
    throw UsageError("[mma] got '" + o.generation + "', want v100, turing, a100, ada, h100, h200 or b200");
  return found.core;
}

const char* result_text(const Rule& rule) {
  switch (rule.result) {
    case Rule::Result::truncated: return "cut off to fp32";
    case Rule::Result::truncated_13_bits: return "cut off to 13 bits of fraction";
    case Rule::Result::nearest_fp16: return "to nearest fp16";
  }
  return "";
}

/// The instructions of a generation, each with its largest k.
std::vector<Instruction> instructions(const MmaOptions& o) {
  std::vector<Instruction> out;
  for (const Input type : kInputs)
    for (const Output output : kOutputs)
      for (const Unit unit : kUnits) {
        Instruction i{.generation = generation_of(o), .a = type, .b = type, .output = output, .unit = unit};
        i.floor = o.floor;
        i.k = largest_k(i.generation, type);
        const bool asked = (!o.a || *o.a == type) && (!o.output || *o.output == output) && (!o.unit || *o.unit == unit);
        if (asked && i.k > 0 && lacking(i).empty()) out.push_back(i);
      }
  return out;
}

ExitCode show_table(const MmaOptions& o) {
  const std::vector<Instruction> all = instructions(o);
  if (o.json) {
    Json json = {{"schema", "ampcheck.mma/1"}, {"generation", o.generation}, {"instructions", Json::array()}};
    for (const Instruction& i : all) {
      const Rule rule = rule_of(i);
      json["instructions"].push_back({{"unit", name(i.unit)},
                                      {"in", name(i.a)},
                                      {"out", name(i.output)},
                                      {"k", i.k},
                                      {"block", rule.products},
                                      {"fraction", rule.fraction},
                                      {"result", result_text(rule)},
                                      {"by_two_fp16", rule.by_two_fp16}});
    }
    write_stdout(json_text(json));
    return all.empty() ? ExitCode::nothing_ran : ExitCode::passed;
  }
  std::string out = fmt::format("  {:<9}{:<12}{:>4}{:>7}{:>6}  {}\n", "unit", "types", "k", "block", "F", "result");
  for (const Instruction& i : all) {
    const Rule rule = rule_of(i);
    out += fmt::format("  {:<9}{:<12}{:>4}{:>7}{:>6}  {}{}\n", name(i.unit),
                       fmt::format("{} {}", name(i.a), name(i.output)), i.k, rule.products, rule.fraction,
                       result_text(rule), rule.by_two_fp16 ? "; as two fp16 products, c added last" : "");
  }
  out +=
      "k: products of the largest instruction. block: products that are added at once. F: bits that each of them and c "
      "keep below the largest exponent.\n"
      "ampcheck explain tensor-cores says more.\n";
  write_stdout(out);
  return all.empty() ? ExitCode::nothing_ran : ExitCode::passed;
}

Vectors read(const MmaOptions& o) {
  std::string text, name = "standard input";
  if (o.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    name = o.file;
    require_readable(name);
    text = read_bytes(name, "vectors");
  }
  return as_usage([&] { return read_vectors(text, name); });
}

/// One way to compute the vectors.
struct Way {
  Unit unit;
  bool with_c;
  std::size_t differ = 0;
  std::optional<std::size_t> first = {};  ///< of all vectors, that differs
  std::uint32_t got = 0;                  ///< there, as fp32 bits
  std::string text() const { return std::string(name(unit)) + (with_c ? "" : ", c taken as 0"); }
};

/// The instruction for vectors of n products: the smallest that holds them, or the largest, of which some make a chain.
Instruction instruction_for(Instruction i, std::size_t n) {
  for (const int k : {4, 8, 16, 32}) {
    i.k = k;
    if (static_cast<std::size_t>(k) >= n && lacking(i).empty()) return i;
  }
  i.k = std::max(largest_k(i.generation, i.a), 1);
  if (const std::string why = lacking(i); !why.empty()) throw UsageError("[mma] " + why);
  return i;
}

std::uint32_t value_of(const Instruction& types, const Order& order, const Vector& v, bool with_c) {
  const Product product{instruction_for(types, v.a.size()), order};
  return to_fp32(types.output, element(product, v.a, v.b, with_c ? from_fp32(types.output, v.c) : 0));
}

Instruction types_of(const MmaOptions& o, const Vectors& v) {
  Instruction i;
  i.generation = generation_of(o);
  i.floor = o.floor;
  const std::optional<Input> a = o.a ? o.a : v.a;
  if (!a) throw UsageError("[mma] got no type of a and b, want --in, or a first line '# in=fp16 out=fp32' in the file");
  i.a = *a;
  i.b = o.b ? *o.b : v.b && !o.a ? *v.b : *a;
  i.output = o.output ? *o.output : v.output ? *v.output : Output::fp32;
  return i;
}

/// Every unit of the generation that has these types, the one that was asked for alone; with c first.
std::vector<Way> ways(const MmaOptions& o, const Instruction& types) {
  std::vector<Way> out;
  std::string why;
  for (const bool with_c : {true, false})
    for (const Unit unit : kUnits) {
      Instruction i = types;
      i.unit = unit;
      i.k = largest_k(i.generation, i.a);
      if (o.unit && *o.unit != unit) continue;
      if (const std::string lacks = lacking(i); lacks.empty())
        out.push_back({unit, with_c});
      else if (why.empty())
        why = lacks;
    }
  if (out.empty()) throw UsageError("[mma] " + why);
  return out;
}

void compare(const MmaOptions& o, const Instruction& types, const Vectors& v, Way& way) {
  Instruction i = types;
  i.unit = way.unit;
  for (std::size_t at = 0; at < v.all.size(); ++at) {
    if (!v.all[at].d) continue;
    const std::uint32_t got = value_of(i, o.order, v.all[at], way.with_c);
    if (got == *v.all[at].d) continue;
    ++way.differ;
    if (!way.first) {
      way.first = at;
      way.got = got;
    }
  }
}

std::string types_text(const Instruction& i) {
  return fmt::format("{}{} to {}", name(i.a), i.a == i.b ? "" : fmt::format(" by {}", name(i.b)), name(i.output));
}

Json compared_json(const MmaOptions& o, const Instruction& types, const Vectors& v, std::size_t with_d,
                   const std::vector<Way>& tried, const Way& best) {
  Json json = {{"schema", "ampcheck.mma/1"}, {"generation", o.generation}, {"file", o.file},
               {"in", name(types.a)},        {"in_b", name(types.b)},      {"out", name(types.output)},
               {"vectors", with_d},          {"tried", Json::array()}};
  json["explained_by"] = best.differ == 0 ? Json(best.text()) : Json(nullptr);
  for (const Way& way : tried) {
    Json entry = {{"unit", name(way.unit)}, {"with_c", way.with_c}, {"differ", way.differ}, {"first", nullptr}};
    if (way.first)
      entry["first"] = {{"line", v.all[*way.first].line},
                        {"want", fmt::format("{:08x}", way.got)},
                        {"got", fmt::format("{:08x}", *v.all[*way.first].d)}};
    json["tried"].push_back(std::move(entry));
  }
  return json;
}

/// Which instruction gives the d of the file, if any does.
ExitCode show_comparison(const MmaOptions& o, const Instruction& types, const Vectors& v, std::size_t with_d) {
  std::vector<Way> tried;
  for (Way way : ways(o, types)) {
    compare(o, types, v, way);
    tried.push_back(way);
    if (way.differ == 0) break;
  }
  const Way& best =
      *std::min_element(tried.begin(), tried.end(), [](const Way& a, const Way& b) { return a.differ < b.differ; });
  const ExitCode code = best.differ == 0 ? ExitCode::passed : ExitCode::findings;
  if (o.json) {
    write_stdout(json_text(compared_json(o, types, v, with_d, tried, best)));
    return code;
  }
  std::string out = fmt::format("{} vectors, {}, on {}\n", grouped(static_cast<std::int64_t>(with_d)),
                                types_text(types), o.generation);
  for (const Way& way : tried) {
    out += fmt::format("  {:<24}{} differ\n", way.text(), grouped(static_cast<std::int64_t>(way.differ)));
    if (way.first && &way == &best)
      out +=
          fmt::format("    line {}: got {:08x}, want {:08x}\n", v.all[*way.first].line, *v.all[*way.first].d, way.got);
  }
  out += best.differ == 0 ? fmt::format("Every d is that of {}.\n", best.text())
                          : "No instruction of this generation gives these d.\n";
  write_stdout(out);
  return code;
}

/// The file again, with d.
ExitCode show_values(const MmaOptions& o, Instruction types, const Vectors& v) {
  types.unit = ways(o, types).front().unit;
  Json values = Json::array();
  std::string out = fmt::format("# gpu={} in={} in_b={} out={} unit={}\n", o.generation, name(types.a), name(types.b),
                                name(types.output), name(types.unit));
  const auto list = [&out](Input type, const std::vector<std::uint32_t>& codes) {
    const int digits = 2 * format_of(type).storage_bytes();
    for (const std::uint32_t code : codes) out += fmt::format("{:0{}x} ", code, digits);
  };
  for (const Vector& vector : v.all) {
    const std::uint32_t d = value_of(types, o.order, vector, true);
    values.push_back({{"line", vector.line}, {"d", fmt::format("{:08x}", d)}});
    list(types.a, vector.a);
    out += "| ";
    list(types.b, vector.b);
    out += fmt::format("| {:08x} | {:08x}\n", vector.c, d);
  }
  if (o.json)
    out = json_text({{"schema", "ampcheck.mma/1"},
                     {"generation", o.generation},
                     {"file", o.file},
                     {"in", name(types.a)},
                     {"in_b", name(types.b)},
                     {"out", name(types.output)},
                     {"unit", name(types.unit)},
                     {"values", std::move(values)}});
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace

ExitCode mma_command(const MmaOptions& o) {
  generation_of(o);
  if (o.file.empty()) return show_table(o);
  const Vectors v = read(o);
  if (v.all.empty()) {
    write_stderr("ampcheck: " + o.file + " has no vector\n");
    return ExitCode::nothing_ran;
  }
  if (v.scaled) {
    if (generation_of(o) != TensorCore::b200)
      throw UsageError("[mma] got vectors with scales and '" + o.generation + "', want b200: no older core has them");
    if (o.a || o.output || o.unit)
      throw UsageError(
          "[mma] got vectors with scales and --in, --out or --unit, want none of them: the file says its types");
    return mma_scaled(v, o.json);
  }
  const Instruction types = types_of(o, v);
  const auto with_d =
      static_cast<std::size_t>(std::count_if(v.all.begin(), v.all.end(), [](const Vector& each) { return each.d; }));
  return with_d > 0 ? show_comparison(o, types, v, with_d) : show_values(o, types, v);
}

}  // namespace ampcheck::tools
