// SPDX-License-Identifier: Apache-2.0
// Options of the commands that show something or write an example: formats, mma, explain, new, trace, autocast, facts,
// doctor, version.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/rounding.h"
#include "src/tensor_core/product.h"
#include "tools/choose/case_options.h"
#include "tools/choose/report_formats.h"

namespace ampcheck::tools {

struct FormatsOptions : CommonOptions {
  std::vector<std::string> values = {};
  std::vector<std::string> formats = {};  ///< only these
  RoundingMode rounding = {};
};
void add_options(CLI::App* command, FormatsOptions& o);

struct ConfigOptions : CommonOptions {
  bool show = false;
  std::string command = {};  ///< only this one's
  std::string profile = {};  ///< whose settings come first
};
void add_options(CLI::App* command, ConfigOptions& o);

struct CompletionOptions : CommonOptions {
  std::string shell = {};  ///< bash, zsh or fish
};
void add_options(CLI::App* command, CompletionOptions& o);

/// How `explain` prints a page of the manual.
enum class PageFormat { text, markdown, man, html };

struct ExplainOptions : CommonOptions {
  std::vector<std::string> codes = {};  ///< or one page
  PageFormat page_format = PageFormat::text;
};
void add_options(CLI::App* command, ExplainOptions& o);

struct MmaOptions : CommonOptions {
  std::string generation = {};                       ///< v100, ..., b200, or a GPU's name such as l40s
  std::string file = {};                             ///< vectors; empty: the table of instructions
  std::optional<tensor_core::Input> a = {}, b = {};  ///< in place of what the file says
  std::optional<tensor_core::Output> output = {};
  std::optional<tensor_core::Unit> unit = {};
  tensor_core::Floor floor = tensor_core::Floor::of_output;
  tensor_core::Order order = {};
};
void add_options(CLI::App* command, MmaOptions& o);

struct NewOptions : CommonOptions {
  std::vector<std::string> what = {};  ///< "op", NAME
  std::string door = "cpp";            ///< cpp, c or toml
};
void add_options(CLI::App* command, NewOptions& o);

struct TraceOptions : CommonOptions {
  std::string file = {};
  bool csv = false;  ///< rows on standard output
  std::vector<ReportFile> reports = {};
};
void add_options(CLI::App* command, TraceOptions& o);

struct AutocastListsOptions : CommonOptions {
  std::vector<std::string> words = {};  ///< "lists", then ops or none
  std::string torch = {}, device = {};  ///< empty: the newest; cuda
};
void add_options(CLI::App* command, AutocastListsOptions& o);

struct FactsOptions : CommonOptions {
  std::string data = {};  ///< folder of digits and text; empty: the installed one
  bool times = false;     ///< times of products in place of the claims
};
void add_options(CLI::App* command, FactsOptions& o);

struct DoctorOptions : CommonOptions {};
inline void add_options(CLI::App*, DoctorOptions&) {}

struct VersionOptions : CommonOptions {};
inline void add_options(CLI::App*, VersionOptions&) {}

}  // namespace ampcheck::tools
