// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/workers/description.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "checks/doors/description_fields.h"
#include "reference/text/formula_text.h"
#include "tools/workers/wire_bytes.h"

namespace ampcheck::tools {

namespace {

using namespace checks::description;

constexpr std::size_t kMostText = std::max<std::size_t>(reference::kMaxFormulaLength, kMostLine);

/// Walks a description that was found right, with the checks of description_fields.h all the same.
class Writing {
 public:
  explicit Writing(const checks::Plugin& plugin) : place_(plugin.path) {
    const ac_plugin from = sized(plugin.description, place_);
    std::set<int> refused;
    for (const checks::RefusedOp& op : plugin.refused) refused.insert(op.index);
    const auto ops = array(from.ops, from.op_count, "op", place_, kMostOps);
    out_.put(std::uint64_t{from.abi});
    out_.put(std::uint64_t{ops.size() - refused.size()});
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (!refused.contains(static_cast<int>(i))) put(ops[i]);
  }
  std::string take() { return out_.take(); }

 private:
  void put(std::int64_t value) { out_.put(value); }
  void put(double value) { out_.put(value); }
  void put(bool value) { out_.put(std::uint64_t{value}); }
  /// Null is not empty.
  void put(const char* from) {
    put(from != nullptr);
    if (from != nullptr) out_.put(text(from, kMostText, "text", place_));
  }
  template <class T>
  void put_all(const T* from, std::int32_t count, const char* what) {
    const std::vector<T> all = array(from, count, what, place_);
    out_.put(std::uint64_t{all.size()});
    for (const T& one : all) put(one);
  }
  template <class T>
  void put_numbers(const T* from, std::int32_t count) {
    const std::int32_t n = from == nullptr ? 0 : std::clamp(count, 0, kMostEntries);
    out_.put(static_cast<std::uint64_t>(n));
    for (std::int32_t i = 0; i < n; ++i) put(from[i]);
  }
  void put(std::int32_t value) { out_.put(std::int64_t{value}); }
  void put(std::uint32_t value) { out_.put(std::uint64_t{value}); }

  void put(const ac_input& input) {
    put(input.flags);
    for (const char* const part : {input.name, input.dims, input.index_dim}) put(part);
    for (const std::int32_t part : {input.role, input.type, input.domain, input.gradient_over}) put(part);
  }
  void put(const ac_output& output) {
    put(output.flags);
    put(output.type);
    for (const char* const part : {output.name, output.in_place, output.dims}) put(part);
  }
  void put(const ac_attribute& attribute) {
    put(attribute.name);
    put(attribute.default_value);
    put_numbers(attribute.other_values, attribute.other_count);
  }
  void put(const ac_dim& dim) {
    put(dim.symbol);
    put(dim.multiple_of);
    for (const std::int64_t extent : dim.samples) put(extent);
    put(dim.least);
    put(dim.most);
  }
  void put(const ac_form& form) {
    put(form.flags);
    put(form.name);
    put(form.formula);
  }
  void put(const ac_kink& kink) {
    put(kink.input);
    put(kink.at);
    put(kink.convention);
  }
  void put(const ac_math& math) {
    put(math.cuda);
    for (const double ulps :
         {math.exp, math.expm1, math.log, math.log1p, math.tanh, math.erf, math.erfc, math.sqrt, math.rsqrt})
      put(ulps);
  }
  void put(const ac_contract* from) {
    put(from != nullptr);
    if (from == nullptr) return;
    const ac_contract contract = sized(from, place_);
    put_numbers(contract.storage, contract.storage_count);
    for (const std::int32_t part : {contract.compute, contract.accumulate, contract.summation_depth,
                                    contract.flushes_subnormals, contract.atomics})
      put(part);
    for (const double part : {contract.largest_input, contract.smallest_scale, contract.largest_scale}) put(part);
    put(contract.math != nullptr);
    if (contract.math != nullptr) put(sized(contract.math, place_));
  }
  void put(const ac_variant& variant) {
    put(variant.name);
    for (const ac_kernel kernel : {variant.forward, variant.backward, variant.jvp}) put(kernel != nullptr);
  }
  /// Those that this program knows; the others were not required.
  void put(const ac_extension& extension) {
    put(extension.flags);
    put(extension.name);
    const std::string_view name = extension.name == nullptr ? "" : extension.name;
    const bool twice = name == AC_DOUBLE_BACKWARD, variants = name == AC_VARIANTS;
    put(extension.data != nullptr);
    if (extension.data == nullptr) return;  // whoever reads it says so
    if (twice) put(sized(static_cast<const ac_double_backward*>(extension.data), place_).run != nullptr);
    if (name == AC_SOURCE) {
      const ac_source source = sized(static_cast<const ac_source*>(extension.data), place_);
      put(source.file);
      put(source.line);
    }
    if (!variants) return;
    const ac_variants list = sized(static_cast<const ac_variants*>(extension.data), place_);
    put_all(list.variants, list.variant_count, "variant");
  }
  void put(const ac_op& op) {
    put(op.flags);
    put(op.devices);
    for (const char* const part : {op.name, op.summary, op.row_dim}) put(part);
    put_all(op.inputs, op.input_count, "input");
    put_all(op.outputs, op.output_count, "output");
    put_all(op.saved, op.saved_count, "saved");
    put_all(op.attributes, op.attribute_count, "attribute");
    put_all(op.dims, op.dim_count, "dim");
    put_all(op.forms, op.form_count, "form");
    put(op.contract);
    put_all(op.kinks, op.kink_count, "kink");
    put_all(op.extensions, op.extension_count, "extension");
    for (const ac_kernel kernel : {op.forward, op.backward, op.jvp}) put(kernel != nullptr);
  }

  Place place_;
  Writer out_;
};

std::int32_t runs_elsewhere(const ac_call* call) {
  call->host->set_error(call->host->context, "the kernels of this library run in another process");
  return 1;
}

}  // namespace

std::string description_bytes(const checks::Plugin& plugin) { return Writing(plugin).take(); }

/// Reads fields in the order in which Writing puts them.
class Description::Reading {
 public:
  Reading(std::string_view bytes, Memory& memory) : in_(bytes), memory_(memory) {}

  std::uint64_t number() {
    std::uint64_t out = 0;
    in_.get(out);
    return out;
  }
  const char* text() {
    bool there = false;
    in_.get(there);
    if (!there) return nullptr;
    in_.get(memory_.texts.emplace_back());
    return memory_.texts.back().c_str();
  }
  void end() const { in_.end(); }
  /// A list of structs, each with its size; null if it is empty.
  template <class T>
  const T* all(std::deque<std::vector<T>>& memory, std::int32_t& count) {
    std::vector<T>& out = memory.emplace_back(in_.count(8));
    for (T& one : out) read(one);
    count = static_cast<std::int32_t>(out.size());
    return out.empty() ? nullptr : out.data();
  }
  void read(ac_op& op) {
    op = {};
    op.struct_size = sizeof op;
    read(op.flags);
    read(op.devices);
    for (const char** const part : {&op.name, &op.summary, &op.row_dim}) *part = text();
    op.inputs = all(memory_.inputs, op.input_count);
    op.outputs = all(memory_.outputs, op.output_count);
    op.saved = all(memory_.outputs, op.saved_count);
    op.attributes = all(memory_.attributes, op.attribute_count);
    op.dims = all(memory_.dims, op.dim_count);
    op.forms = all(memory_.forms, op.form_count);
    op.contract = contract();
    op.kinks = all(memory_.kinks, op.kink_count);
    op.extensions = all(memory_.extensions, op.extension_count);
    for (ac_kernel* const kernel : {&op.forward, &op.backward, &op.jvp}) *kernel = this->kernel();
  }

 private:
  void read(std::int32_t& value) { in_.get(value); }
  void read(std::int64_t& value) { in_.get(value); }
  void read(double& value) { in_.get(value); }
  void read(std::uint32_t& value) { value = static_cast<std::uint32_t>(number()); }
  bool flag() {
    bool out = false;
    in_.get(out);
    return out;
  }
  ac_kernel kernel() { return flag() ? runs_elsewhere : nullptr; }

  void read(ac_input& input) {
    input.struct_size = sizeof input;
    read(input.flags);
    for (const char** const part : {&input.name, &input.dims, &input.index_dim}) *part = text();
    for (std::int32_t* const part : {&input.role, &input.type, &input.domain, &input.gradient_over}) read(*part);
  }
  void read(ac_output& output) {
    output.struct_size = sizeof output;
    read(output.flags);
    read(output.type);
    for (const char** const part : {&output.name, &output.in_place, &output.dims}) *part = text();
  }
  void read(ac_attribute& attribute) {
    attribute.struct_size = sizeof attribute;
    attribute.name = text();
    read(attribute.default_value);
    attribute.other_values = all(memory_.numbers, attribute.other_count);
  }
  void read(ac_dim& dim) {
    dim.struct_size = sizeof dim;
    dim.symbol = text();
    read(dim.multiple_of);
    for (std::int64_t& extent : dim.samples) read(extent);
    read(dim.least);
    read(dim.most);
  }
  void read(ac_form& form) {
    form.struct_size = sizeof form;
    read(form.flags);
    form.name = text();
    form.formula = text();
  }
  void read(ac_kink& kink) {
    kink.struct_size = sizeof kink;
    kink.input = text();
    read(kink.at);
    kink.convention = text();
  }
  void read(ac_math& math) {
    math.struct_size = sizeof math;
    read(math.cuda);
    for (double* const ulps :
         {&math.exp, &math.expm1, &math.log, &math.log1p, &math.tanh, &math.erf, &math.erfc, &math.sqrt, &math.rsqrt})
      read(*ulps);
  }
  const ac_contract* contract() {
    if (!flag()) return nullptr;
    ac_contract& out = memory_.contracts.emplace_back();
    out.struct_size = sizeof out;
    out.storage = all(memory_.types, out.storage_count);
    for (std::int32_t* const part :
         {&out.compute, &out.accumulate, &out.summation_depth, &out.flushes_subnormals, &out.atomics})
      read(*part);
    for (double* const part : {&out.largest_input, &out.smallest_scale, &out.largest_scale}) read(*part);
    if (!flag()) return &out;
    read(memory_.maths.emplace_back());
    out.math = &memory_.maths.back();
    return &out;
  }
  void read(ac_variant& variant) {
    variant.struct_size = sizeof variant;
    variant.name = text();
    for (ac_kernel* const kernel : {&variant.forward, &variant.backward, &variant.jvp}) *kernel = this->kernel();
  }
  void read(ac_extension& extension) {
    extension.struct_size = sizeof extension;
    read(extension.flags);
    extension.name = text();
    const std::string_view name = extension.name == nullptr ? "" : extension.name;
    if (number() == 0) return;
    if (name == AC_DOUBLE_BACKWARD) {
      ac_double_backward& out = memory_.double_backwards.emplace_back();
      out.struct_size = sizeof out;
      out.run = kernel();
      extension.data = &out;
    } else if (name == AC_SOURCE) {
      ac_source& out = memory_.sources.emplace_back();
      out.struct_size = sizeof out;
      out.file = text();
      read(out.line);
      extension.data = &out;
    } else if (name == AC_VARIANTS) {
      ac_variants& out = memory_.variant_lists.emplace_back();
      out.struct_size = sizeof out;
      out.variants = all(memory_.variants, out.variant_count);
      extension.data = &out;
    }
  }

  Reader in_;
  Memory& memory_;
};

Description::Description(std::string_view bytes) {
  Reading in(bytes, memory_);
  plugin_.struct_size = sizeof plugin_;
  plugin_.abi = static_cast<std::uint32_t>(in.number());
  const std::uint64_t ops = in.number();
  if (ops > kMostOps) throw Error("[runner] got a description that cannot be read");
  for (std::uint64_t i = 0; i < ops; ++i) in.read(ops_.emplace_back());
  in.end();
  plugin_.ops = ops_.data();
  plugin_.op_count = static_cast<std::int32_t>(ops_.size());
}

}  // namespace ampcheck::tools
