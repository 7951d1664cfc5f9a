// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/case_options.h"

#include <algorithm>
#include <optional>

#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

constexpr const char* kSelectors =
    "an op, a case name, or a pattern of either with * and ?; without: all built-in ops. For ops of a library or TOML "
    "file: this file first (./libmy_op.so)";

constexpr std::array kSets = {Named<checks::CaseSet>{"quick", checks::CaseSet::quick},
                              Named<checks::CaseSet>{"standard", checks::CaseSet::standard},
                              Named<checks::CaseSet>{"all", checks::CaseSet::all}};
constexpr std::array kReal = {Named<RealTensors>{"on", RealTensors::on}, Named<RealTensors>{"only", RealTensors::only},
                              Named<RealTensors>{"off", RealTensors::off}};

constexpr std::int64_t kMostExtents = 65536;  ///< in turn

std::optional<std::int64_t> parse_extent(const std::string& text) {
  const std::optional<std::int64_t> out = parse_whole(text);
  return out && *out >= 0 && *out <= (std::int64_t{1} << 40) ? out : std::nullopt;
}

ShapeFilter parse_extents(const std::string& text) {
  ShapeFilter filter{ShapeFilter::Kind::extents};
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string item = text.substr(start, comma - start);
    const std::size_t equal = std::min(item.find('='), item.size());
    const std::string symbol = item.substr(0, equal), value = item.substr(std::min(equal + 1, item.size()));
    const std::size_t dots = value.find("..");
    const auto first = parse_extent(value.substr(0, dots)),
               last = dots == value.npos ? first : parse_extent(value.substr(dots + 2));
    if (equal == 0 || equal == item.size() || !first || !last || *first > *last)
      throw UsageError("[--shapes] got '" + item +
                       "', want a dimension with its extent, as N=64, or with all from one "
                       "to another, as D=1..1024");
    if (dots == value.npos) {
      filter.extents[symbol] = *first;
    } else {
      if (*last - *first >= kMostExtents)
        throw UsageError("[--shapes] got '" + item + "', want at most " + grouped(kMostExtents) + " extents");
      filter.kind = ShapeFilter::Kind::ranges;
      filter.ranges[symbol] = {*first, *last};
    }
    start = comma + 1;
  }
  return filter;
}

ShapeFilter parse_shapes(const std::string& text) {
  if (text.find('=') != std::string::npos) return parse_extents(text);
  using Kind = ShapeFilter::Kind;
  constexpr std::array kKinds = {Named<Kind>{"first", Kind::first}, Named<Kind>{"standard", Kind::standard},
                                 Named<Kind>{"all", Kind::all}, Named<Kind>{"every", Kind::ranges}};
  try {
    return {choose("--shapes", text, kKinds)};
  } catch (const UsageError& error) {
    throw UsageError(std::string(error.what()) + ", or extents of your own as N=64,D=1025 or D=1..1024");
  }
}

}  // namespace

void add_dtype_option(CLI::App* command, std::vector<Dtype>& dtypes) {
  each(command, "--dtype", "T", "only this storage type: fp32, fp16, bf16, or fp64, e4m3fn, e5m2 (may be repeated)",
       [&dtypes](const std::string& t) { dtypes.push_back(choose("--dtype", t, kStorageTypes)); });
}

void add_set_options(CLI::App* command, CaseOptions& o) {
  add_dtype_option(command, o.dtypes);
  each(command, "--seeds", "N", "number of seeds (1)",
       [&o](const std::string& t) { o.seeds = parse_count("--seeds", t, 1, 1'000'000); });
  add_seed_option(command, "the first seed (1)", o.first_seed);
  each(command, "--regimes", "SET",
       "how many kinds of data and of incoming gradients are tried: quick, standard or all (standard)",
       [&o](const std::string& t) { o.set = choose("--regimes", t, kSets); });
}

void add_case_options(CLI::App* command, CaseOptions& o) {
  add_set_options(command, o);
  each(command, "--shapes", "WHICH",
       "which shapes: first, standard or all (all); your own, such as N=64,D=1025; or one case for each extent: "
       "D=1..4096, or every (1 to 1,024 of each dimension)",
       [&o](const std::string& t) { o.shapes = parse_shapes(t); });
  each(command, "--real", "WHEN", "tensors from real training runs: on, only or off (on if their data is found)",
       [&o](const std::string& t) { o.real = choose("--real", t, kReal); });
  add_data_option(command, o.data);
}

void add_data_option(CLI::App* command, std::string& data) {
  text_option(command, "--data", "DIR", "folder with the data of the real runs", data);
}

void add_inputs_option(CLI::App* command, CaseOptions& o) {
  text_option(command, "--inputs", "FILE",
              "check one op on these tensors: a safetensors or npz file with its inputs by name, and gradients for its "
              "outputs by d and the output's name",
              o.inputs);
}

void add_selectors(CLI::App* command, CaseOptions& o) {
  add_words(command, "SELECTOR", o.words, kSelectors);
  text_option(command, "--launch", "FILE",
              "a TOML file: how the GPU kernel that stands first (softmax.ptx or softmax.cu) is launched, and what it "
              "should compute. The kernel runs on the CPU",
              o.launch);
}

void require_consistent(const CaseOptions& o) {
  if (o.real == RealTensors::only && o.shapes.kind != ShapeFilter::Kind::all)
    throw UsageError(
        "[--shapes] got shapes beside '--real only', want one of the two: tensors of real runs have the shapes they "
        "have");
}

}  // namespace ampcheck::tools
