// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/info_options.h"

#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

namespace {

constexpr std::array kRoundings = {Named<Rounding>{"nearest_even", Rounding::nearest_even},
                                   Named<Rounding>{"toward_zero", Rounding::toward_zero},
                                   Named<Rounding>{"up", Rounding::up},
                                   Named<Rounding>{"down", Rounding::down},
                                   Named<Rounding>{"nearest_away", Rounding::nearest_away},
                                   Named<Rounding>{"to_odd", Rounding::to_odd},
                                   Named<Rounding>{"stochastic", Rounding::stochastic}};
constexpr std::array kOverflows = {
    Named<Overflow>{"default", Overflow::format_default}, Named<Overflow>{"infinity", Overflow::infinity},
    Named<Overflow>{"nan", Overflow::nan}, Named<Overflow>{"saturate", Overflow::saturate}};
constexpr std::array kInputs = {Named<tensor_core::Input>{"fp16", tensor_core::Input::fp16},
                                Named<tensor_core::Input>{"bf16", tensor_core::Input::bf16},
                                Named<tensor_core::Input>{"tf32", tensor_core::Input::tf32},
                                Named<tensor_core::Input>{"e4m3", tensor_core::Input::e4m3},
                                Named<tensor_core::Input>{"e5m2", tensor_core::Input::e5m2}};
constexpr std::array kOutputs = {Named<tensor_core::Output>{"fp32", tensor_core::Output::fp32},
                                 Named<tensor_core::Output>{"fp16", tensor_core::Output::fp16}};
constexpr std::array kUnits = {Named<tensor_core::Unit>{"mma", tensor_core::Unit::mma},
                               Named<tensor_core::Unit>{"wgmma", tensor_core::Unit::wgmma},
                               Named<tensor_core::Unit>{"tcgen05", tensor_core::Unit::tcgen05}};
constexpr std::array kFloors = {Named<tensor_core::Floor>{"output", tensor_core::Floor::of_output},
                                Named<tensor_core::Floor>{"zeros", tensor_core::Floor::of_zeros}};
constexpr std::array kPageFormats = {
    Named<PageFormat>{"text", PageFormat::text}, Named<PageFormat>{"markdown", PageFormat::markdown},
    Named<PageFormat>{"man", PageFormat::man}, Named<PageFormat>{"html", PageFormat::html}};
constexpr std::array kDoors = {Named<const char*>{"cpp", "cpp"}, Named<const char*>{"c", "c"},
                               Named<const char*>{"toml", "toml"}};

}  // namespace

void add_options(CLI::App* command, FormatsOptions& o) {
  add_words(command, "VALUE", o.values, "decimal, hexadecimal (0x1.8p-3), inf or nan");
  each(command, "--format", "F",
       "only this format; also any format by its name, such as e5m7 or e4m3b11fnuz (may be repeated)",
       [&o](const std::string& t) { o.formats.push_back(t); });
  each(command, "--rounding", "R", "nearest_even (default), toward_zero, up, down, nearest_away, to_odd, stochastic",
       [&o](const std::string& t) { o.rounding.rounding = choose("--rounding", t, kRoundings); });
  each(command, "--overflow", "O", "default, infinity, nan or saturate",
       [&o](const std::string& t) { o.rounding.overflow = choose("--overflow", t, kOverflows); });
  add_flag(
      command, "--flush", [&o] { o.rounding.subnormals = Subnormals::flush; }, "subnormal numbers become zero");
}

void add_options(CLI::App* command, MmaOptions& o) {
  add_word(command, "GENERATION", o.generation, "v100, turing, a100, ada, h100, h200 or b200", true);
  text_option(command, "-f,--vectors", "FILE",
              "one vector a line, 'a ... | b ... | c' or 'a ... | b ... | c | d' in hex; - is standard input. Without: "
              "the table of its instructions",
              o.file);
  each(command, "--in", "T", "type of a and b: fp16, bf16, tf32, e4m3 or e5m2 (default: as the file's first line says)",
       [&o](const std::string& t) { o.a = o.b = choose("--in", t, kInputs); });
  each(command, "--in-b", "T", "type of b, where it is another one of 8 bits; after --in",
       [&o](const std::string& t) { o.b = choose("--in-b", t, kInputs); });
  each(command, "--out", "T", "type of c and d: fp32 or fp16",
       [&o](const std::string& t) { o.output = choose("--out", t, kOutputs); });
  each(command, "--unit", "U",
       "mma, wgmma (h100) or tcgen05 (b200). Default: mma; of vectors with a d each of them is tried",
       [&o](const std::string& t) { o.unit = choose("--unit", t, kUnits); });
  each(command, "--floor", "F", "least exponent of a block: output (default) or zeros; no public data tells which",
       [&o](const std::string& t) { o.floor = choose("--floor", t, kFloors); });
  each(command, "--promote", "N", "of longer vectors: add to an fp32 sum outside of the core every N instructions",
       [&o](const std::string& t) { o.order.promote = static_cast<int>(parse_count("--promote", t, 1, 1'000'000)); });
  each(command, "--split", "N", "of longer vectors: N runs over k, added at the end",
       [&o](const std::string& t) { o.order.split = static_cast<int>(parse_count("--split", t, 1, 1'000'000)); });
}

void add_options(CLI::App* command, ExplainOptions& o) {
  add_words(command, "CODE or PAGE", o.codes,
            "a code such as AC101, a page of the manual such as tutorial, or a command such as check; "
            "without: a list of all");
  each(command, "--format", "F", "of a page: text (default), markdown, man or html",
       [&o](const std::string& t) { o.page_format = choose("--format", t, kPageFormats); });
}

void add_options(CLI::App* command, ConfigOptions& o) {
  add_word(command, "COMMAND", o.command, "only the settings of this command", false);
  add_flag(command, "--show", o.show, "show each setting with its value and where it comes from");
}

void add_options(CLI::App* command, CompletionOptions& o) {
  add_word(command, "SHELL", o.shell, "bash, zsh or fish", true);
}

void add_options(CLI::App* command, NewOptions& o) {
  add_words(command, "WHAT", o.what, "op NAME: writes an op with its kernel and formula into a folder NAME",
            Words::one_or_two);
  each(command, "--door", "D", "cpp (header-only C++), c (C11) or toml (launchers of a library, no code)",
       [&o](const std::string& t) { o.door = choose("--door", t, kDoors); });
}

void add_options(CLI::App* command, TraceOptions& o) {
  add_word(command, "FILE", o.file, "a trace that train --record wrote", true);
  add_flag(command, "--csv", o.csv, "one row for each tensor of each step");
  add_trace_output(command, o.reports);
}

void add_options(CLI::App* command, AutocastListsOptions& o) {
  add_words(command, "WHAT", o.words, "lists, then ops or patterns such as '*softmax*', without: all", Words::some);
  text_option(command, "--torch", "VERSION", "the release (the newest that is known)", o.torch);
  text_option(command, "--device", "D", "whose lists: cuda (default), cpu, xpu, mtia or maia", o.device);
}

void add_options(CLI::App* command, FactsOptions& o) {
  text_option(command, "--data", "DIR", "folder with digits and text", o.data);
  add_flag(
      command, "--times", o.times,
      "instead measure how long matrix products take on the CPU, with extents that are multiples of eight and others");
}

}  // namespace ampcheck::tools
