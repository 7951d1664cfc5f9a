// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/variants.h"

#include <fmt/format.h>

namespace ampcheck::tools {

namespace {

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

std::string variants_text(const std::vector<VariantClasses>& all) {
  std::string out;
  for (const VariantClasses& of : all) {
    out += fmt::format("\n{}: {} variants, {} bit class{}, {}\n", of.op, of.kernels, of.classes.size(),
                       of.classes.size() == 1 ? "" : "es",
                       of.outside.empty() ? "all inside" : "outside: " + list_of(of.outside));
    for (std::size_t i = 0; i < of.classes.size(); ++i)
      out += fmt::format("  {:<3} {}\n", i + 1, list_of(of.classes[i]));
    if (!of.unknown.empty()) out += fmt::format("  no case gave bits to compare: {}\n", list_of(of.unknown));
  }
  return out;
}

Json variants_json(const std::vector<VariantClasses>& all) {
  Json out = Json::array();
  for (const VariantClasses& of : all) {
    Json classes = Json::array();
    for (const std::vector<std::string>& kernels : of.classes) classes.push_back({{"kernels", kernels}});
    out.push_back({{"op", of.op},
                   {"count", of.kernels},
                   {"classes", std::move(classes)},
                   {"outside", of.outside},
                   {"unknown", of.unknown}});
  }
  return out;
}

}  // namespace ampcheck::tools
