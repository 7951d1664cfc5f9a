// SPDX-License-Identifier: Apache-2.0
#include "checks/define/rows.h"

#include <algorithm>

#include "src/extent.h"

namespace ampcheck::checks {

std::vector<std::string> row_symbols(const OpSignature& signature) {
  return OpSignature::symbols(TensorSpec{.name = "rows", .dims = signature.launch.row_dim});
}

bool has_rows(const OpSignature& signature, const TensorSpec& spec) {
  const std::vector<std::string> rows = row_symbols(signature), symbols = OpSignature::symbols(spec);
  return !rows.empty() && rows.size() <= symbols.size() && std::equal(rows.begin(), rows.end(), symbols.begin());
}

std::int64_t rows_of(const OpSignature& signature, const OpCall& call) {
  const std::string& axis = signature.launch.row_axis;
  if (!axis.empty() && call.attributes.integer(axis) != -1) return 0;
  const std::vector<std::string> symbols = row_symbols(signature);
  std::int64_t rows = symbols.empty() ? 0 : 1;
  for (const std::string& symbol : symbols) {
    const auto found = call.dims.find(symbol);
    rows *= found == call.dims.end() ? 0 : found->second;
  }
  return rows;
}

std::vector<double> taken(const std::vector<double>& values, const RowRange& rows) {
  const auto width = static_cast<std::ptrdiff_t>(values.size()) / rows.all;
  return {values.begin() + rows.first * width, values.begin() + (rows.first + rows.count) * width};
}

std::string misplaced_rows(const OpSignature& signature, const OpCall& call) {
  const std::vector<std::string> rows = row_symbols(signature);
  for (const TensorSpec& spec : signature.inputs) {
    if (!call.has(spec)) continue;
    const std::vector<std::string> symbols = OpSignature::symbols(spec);
    const auto of_rows = [&](const std::string& symbol) {
      return std::find(rows.begin(), rows.end(), symbol) != rows.end();
    };
    const auto follows = [&](const std::string& extent) {  // "N/2", or a second N
      if (has_dim(signature, extent)) return of_rows(extent);
      const std::vector<std::string> names = names_in_extent(extent);
      return std::any_of(names.begin(), names.end(), of_rows);
    };
    if (of_rows(spec.index_dim)) return "'" + spec.name + "' holds numbers of rows";
    if (!has_rows(signature, spec) && std::any_of(symbols.begin(), symbols.end(), of_rows))
      return "the rows of '" + spec.name + "' do not lie in front";
    const std::size_t leading = has_rows(signature, spec) ? rows.size() : 0;
    if (std::any_of(symbols.begin() + static_cast<std::ptrdiff_t>(leading), symbols.end(), follows))
      return "an extent of '" + spec.name + "' follows from the number of rows";
  }
  return "";
}

OpCall with_rows(const OpSignature& signature, const OpCall& call, std::int64_t rows) {
  const std::vector<std::string> symbols = row_symbols(signature);
  OpCall out = call;
  for (const std::string& symbol : symbols) out.dims[symbol] = symbol == symbols.back() ? rows : 1;
  return out;
}

}  // namespace ampcheck::checks
