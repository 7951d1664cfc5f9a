// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The op that a formula in text and a dump make together.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checks/data/file_tensors.h"
#include "checks/run/dump.h"
#include "reference/certify/certify.h"
#include "reference/text/formula_text.h"
#include "src/error.h"
#include "src/suggestion.h"

namespace ampcheck::checks {

namespace {

using reference::FormulaTerm;

/// The names that a formula reads, in the order of the text, and what it marks.
struct Names {
  std::vector<std::string> read;
  std::set<std::string> targets, indices, saved;

  explicit Names(const reference::ParsedFormula& formula) {
    for (const auto& statement : formula.statements) targets.insert(statement.target);
    for (const auto& statement : formula.statements) {
      visit(formula, statement.value, "");
      for (const auto& adjoint : statement.adjoints) visit(formula, adjoint.value, "d" + statement.target);
    }
  }

 private:
  /// `cotangent`: a name that a `with` brings along.
  void visit(const reference::ParsedFormula& formula, int index, const std::string& cotangent) {
    const FormulaTerm& term = formula.term(index);
    if (term.kind == FormulaTerm::Kind::name && !targets.contains(term.text) && term.text != cotangent &&
        std::find(read.begin(), read.end(), term.text) == read.end())
      read.push_back(term.text);
    const bool stores = term.kind == FormulaTerm::Kind::call && term.text == "stored";
    const std::size_t at = term.text == "one_hot" ? 0 : 1;
    const bool indexes = term.kind == FormulaTerm::Kind::call &&
                         (term.text == "gather" || term.text == "scatter_add" || term.text == "one_hot");
    if (stores && !term.args.empty()) saved.insert(formula.term(term.args[0]).text);
    if (indexes && term.args.size() > at) indices.insert(formula.term(term.args[at]).text);
    for (std::size_t i = stores ? 1 : 0; i < term.args.size(); ++i) visit(formula, term.args[i], cotangent);
    for (const auto& [key, arg] : term.keywords) visit(formula, arg, cotangent);
  }
};

/// Equal extents are one dimension; "#64" is no name of the language.
std::string dims_of(const Shape& shape) {
  std::string out;
  for (int axis = 0; axis < shape.rank; ++axis) out += (axis == 0 ? "#" : " #") + std::to_string(shape[axis]);
  return out;
}

Domain domain_of(const Tensor& tensor) {
  const std::vector<double> values = to_doubles(tensor.view());
  if (values.empty() || std::any_of(values.begin(), values.end(), [](double v) { return !(v > 0); }))
    return Domain::any;
  return std::all_of(values.begin(), values.end(), [](double v) { return v < 1; }) ? Domain::unit_interval
                                                                                   : Domain::positive;
}

/// The narrowest floating type of the inputs: what the op stores.
Dtype storage_of(const TensorFile& dump, const std::vector<std::string>& inputs) {
  std::optional<Dtype> out;
  for (const std::string& input : inputs) {
    const Tensor* tensor = dump.find(input);
    if (tensor == nullptr || !is_float(tensor->dtype())) continue;
    const Dtype got = tensor->dtype();
    if (out && bytes(*out) == bytes(got) && *out != got)
      throw Error("[dump '" + dump.path + "'] tensor '" + input + "', got " + name(got) + ", want " + name(*out) +
                  ", as another input has");
    if (!out || bytes(got) < bytes(*out)) out = got;
  }
  if (!out)
    throw Error("[dump '" + dump.path + "'] got " + dump.names() +
                ", want a tensor of floating numbers that the formula reads");
  return *out;
}

/// `converted`: no input has the storage type, so it was declared, and wide tensors only hold it.
TensorSpec spec_of(const TensorFile& dump, const std::string& input, Dtype storage, bool converted,
                   const Names& names) {
  const Tensor& tensor = *dump.find(input);
  TensorSpec spec{.name = input, .dims = dims_of(tensor.shape())};
  if (is_float(tensor.dtype())) {
    const bool stored =
        tensor.dtype() == storage || (converted && first_inexact(to_doubles(tensor.view()), storage) < 0);
    spec.type = stored ? TypeRule::storage : TypeRule::fp32;  // fp32 beside narrower data, as parameters often are
    spec.domain = domain_of(tensor);
    return spec;
  }
  spec.type = names.indices.contains(input) || tensor.dtype() != Dtype::u8 ? TypeRule::i64 : TypeRule::u8;
  spec.role = spec.type == TypeRule::u8 ? Role::mask : Role::index;
  return spec;
}

void add_dims(const TensorSpec& spec, std::vector<DimSpec>& dims) {
  for (const std::string& symbol : OpSignature::symbols(spec)) {
    if (std::any_of(dims.begin(), dims.end(), [&](const DimSpec& d) { return d.symbol == symbol; })) continue;
    const std::int64_t extent = std::stoll(symbol.substr(1));
    dims.push_back({symbol, {extent, extent, extent}});
  }
}

std::int64_t elements(const OpSignature& signature, const Dims& dims) {
  std::int64_t out = 0;
  for (const TensorSpec& spec : signature.inputs) {
    double count = 1;
    for (const std::string& symbol : OpSignature::symbols(spec)) count *= static_cast<double>(dims.at(symbol));
    out += static_cast<std::int64_t>(std::min(count, 0x1p40));
  }
  return out;
}

/// Small extents, different where the dump's are; 1 and 2 stay.
Dims small_dims(const OpSignature& signature) {
  std::set<std::int64_t> taken;
  Dims out;
  for (const DimSpec& dim : signature.dims)
    if (dim.standard[0] == 1 || dim.standard[0] == 2) taken.insert(out[dim.symbol] = dim.standard[0]);
  for (const DimSpec& dim : signature.dims) {
    if (out.contains(dim.symbol)) continue;
    std::int64_t extent = 3;
    while (taken.contains(extent)) ++extent;
    taken.insert(out[dim.symbol] = extent);
  }
  return out;
}

/// Small extents again, where an extent that is a multiple of another one stays that multiple: halves of a row, heads.
Dims small_multiples(const OpSignature& signature) {
  constexpr std::int64_t kMostTimes = 8;
  std::vector<std::int64_t> extents;
  for (const DimSpec& dim : signature.dims) extents.push_back(dim.standard[0]);
  std::sort(extents.begin(), extents.end());
  std::map<std::int64_t, std::int64_t> small;
  std::int64_t next = 3;
  for (const std::int64_t extent : extents) {
    small[extent] = extent <= 2 ? extent : next;
    for (const std::int64_t of : extents)
      if (of > 2 && of < extent && extent % of == 0 && extent / of <= kMostTimes) {
        small[extent] = extent / of * small[of];
        break;
      }
    if (small[extent] >= next) next = small[extent] + 1;
  }
  Dims out;
  for (const DimSpec& dim : signature.dims) out[dim.symbol] = small[dim.standard[0]];
  return out;
}

/// A name that is neither in the dump nor of the formula's own is a mistake in the formula.
void require_known(const TensorFile& dump, const reference::ParsedFormula& formula, const Names& names) {
  for (const std::string& name : names.read) {
    if (name == "pi" || name == "inf" || dump.find(name) != nullptr) continue;
    std::vector<std::string> tensors;
    for (const NamedTensor& tensor : dump.tensors) tensors.push_back(tensor.name);
    const auto term = std::find_if(formula.terms.begin(), formula.terms.end(), [&](const FormulaTerm& t) {
      return t.kind == FormulaTerm::Kind::name && t.text == name;
    });
    formula.fail(term->at, "got unknown name '" + name + "'" + (name.size() < 3 ? "" : did_you_mean(name, tensors)) +
                               ", want a tensor of '" + dump.path + "', which has " + dump.names());
  }
}

}  // namespace

OpDef op_with_contract(const OpDef& op, const DumpContract& contract) {
  OpDef out = op;
  out.signature.precision.accumulate = contract.accumulate;
  out.signature.precision.math = contract.math;
  // Dumps are of one call: nothing is added to what a buffer held.
  out.signature.launch.accumulates.clear();
  return out;
}

OpDef op_of_formula(const TensorFile& dump, const std::string& text, const DumpContract& contract) {
  const reference::ParsedFormula parsed = reference::parse_formula(text);
  const Names names(parsed);
  require_known(dump, parsed, names);
  std::vector<std::string> inputs;
  for (const std::string& name : names.read)
    if (dump.find(name) != nullptr) inputs.push_back(name);
  OpDef op;
  OpSignature& signature = op.signature;
  signature.name = "formula";
  signature.summary = text;
  const Dtype storage = contract.storage ? *contract.storage : storage_of(dump, inputs);
  signature.precision = {.storage = {storage}};
  // The first tensor of a case prints its storage type.
  const auto rest = std::stable_partition(inputs.begin(), inputs.end(),
                                          [&](const std::string& name) { return dump.find(name)->dtype() == storage; });
  const bool converted = rest == inputs.begin();
  for (const std::string& input : inputs) {
    signature.inputs.push_back(spec_of(dump, input, storage, converted, names));
    add_dims(signature.inputs.back(), signature.dims);
  }
  for (const NamedTensor& tensor : dump.tensors)
    if (names.targets.contains(tensor.name)) signature.outputs.push_back({tensor.name});
  if (signature.outputs.empty()) {
    std::string list;
    for (const std::string& target : names.targets) list += (list.empty() ? "'" : " or '") + target + "'";
    throw Error("[dump '" + dump.path + "'] got " + dump.names() + ", want an output of the formula: " + list);
  }
  for (const std::string& saved : names.saved) signature.saved.push_back({saved});
  op.forms = {reference::form_from_text(signature, "formula", text)};
  return op_with_contract(op, contract);
}

Certificate certify_formula(const OpDef& op, const OpCall& call, std::string& why) {
  constexpr std::int64_t kMostElements = 4096;  // in 100 digits
  Certificate out;
  out.op = op.signature.name;
  for (const Dims& dims : {small_dims(op.signature), small_multiples(op.signature), call.dims}) {
    if (elements(op.signature, dims) > kMostElements) {
      if (constexpr std::string_view kNone = "it fits no small extents"; !why.starts_with(kNone))
        why = std::string(kNone) + (why.empty() ? "" : ": " + why);
      continue;
    }
    try {
      const reference::FormulaVariant variant{.attributes = call.attributes, .dims = dims};
      const reference::FormulaCertificate certificate = reference::certify(op.signature, op.forms, {variant}, 4, 1);
      out.digits = certificate.digits;
      out.error_ratio = certificate.error_ratio;
      out.points = static_cast<std::int64_t>(certificate.points.size());
      out.kinks = certificate.kinks;
      out.variants = 1;
      out.conventions = certificate.conventions;
      if (out.points > 0) {
        why.clear();
        return out;
      }
      why = "nothing in it has a gradient";
    } catch (const Error& error) {
      why = error.what();
      std::replace(why.begin(), why.end(), '\n', ' ');
    }
  }
  return out;
}

}  // namespace ampcheck::checks
