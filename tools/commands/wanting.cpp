// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/wanting.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <map>

#include "checks/define/op_def.h"
#include "checks/models/nets.h"
#include "checks/zoo/zoo.h"
#include "src/error.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

namespace {

struct Count {
  const char* what;
  std::size_t there, least;
};

std::array<Count, 3> counts(const Evidence& op) {
  return {{{"independent values", op.values, Evidence::kValues},
           {"planted defects", op.defects, Evidence::kDefects},
           {"correct variants", op.variants, Evidence::kVariants}}};
}

std::map<std::string, std::size_t> independent_values(const std::filesystem::path& data) {
  const std::filesystem::path file = data / "formula_values.json";
  std::ifstream in(file);
  if (!in) throw EnvironmentError("[wanting] file, got none readable at " + file.string() + ", want it there");
  std::map<std::string, std::size_t> out;
  try {
    const Json values = Json::parse(in);
    for (const Json& entry : values.at("cases")) out[entry.at("op").get<std::string>()] += entry.at("values").size();
  } catch (const Json::exception& error) {
    throw Error("[wanting] " + file.string() + ", " + error.what());
  }
  return out;
}

}  // namespace

std::vector<std::string> Evidence::wanting() const {
  std::vector<std::string> out;
  for (const Count& count : counts(*this))
    if (count.there < count.least) out.emplace_back(count.what);
  if (nets.empty()) out.emplace_back("a net");
  return out;
}

std::string Evidence::broken() const {
  const bool any = values + defects + variants + nets.size() > 0;
  std::string out;
  for (const Count& count : counts(*this))
    if (any && count.there < count.least)
      out += fmt::format("{}{}: {}, want at least {}", out.empty() ? "" : "; ", count.what, count.there, count.least);
  return out.empty() ? out : name + ": " + out;
}

std::vector<Evidence> evidence(const std::filesystem::path& data) {
  const std::map<std::string, std::size_t> values = independent_values(data);
  std::vector<Evidence> out;
  for (const checks::OpDef& op : checks::all_ops()) {
    Evidence one{.name = op.signature.name};
    if (const auto found = values.find(one.name); found != values.end()) one.values = found->second;
    for (const checks::zoo::Specimen& specimen : checks::zoo::specimens())
      if (specimen.name().substr(0, specimen.name().find('.')) == one.name)
        ++(specimen.correct() ? one.variants : one.defects);
    for (const std::string_view net : checks::models::net_names())
      for (const std::string_view met : checks::models::ops_of_net(net))
        if (met == one.name) one.nets.emplace_back(net);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace ampcheck::tools
