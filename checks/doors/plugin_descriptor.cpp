// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// From a plug-in's description to op definitions. The description is hostile until proved otherwise: every pointer,
// count, size and text is checked before it is used.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "checks/define/rows.h"
#include "checks/define/second_order.h"
#include "checks/doors/description_extents.h"
#include "checks/doors/description_fields.h"
#include "checks/doors/plugin.h"
#include "checks/doors/plugin_kernel.h"
#include "reference/certify/certify.h"
#include "reference/text/formula_text.h"
#include "src/op_call.h"

namespace ampcheck::checks {

namespace {

using namespace description;

constexpr auto kTypes = {TypeRule::storage, TypeRule::parameter, TypeRule::fp32,   TypeRule::i64, TypeRule::u8,
                         TypeRule::fp16,    TypeRule::bf16,      TypeRule::e4m3fn, TypeRule::e5m2};

/// One op, read field by field into a definition.
class OpReader {
 public:
  OpReader(const ac_op& op, Place place) : op_(op), place_(std::move(place)) {}

  /// The op, where it has a double backward its backward as an op, and its variants.
  std::vector<OpDef> read() {
    signature_.name = name_of(op_.name, "name", place_);
    place_ = place_.in("'" + signature_.name + "'");
    signature_.summary = one_line(op_.summary, "summary", place_);
    require_flags(op_.flags, AC_OP_STRIDED | AC_OP_SERIAL | AC_OP_BATCH_INVARIANT, place_);
    if ((op_.devices & ~std::uint32_t{AC_ON_CPU | AC_ON_CUDA}) != 0)
      place_.fail("devices, got " + std::to_string(op_.devices) + ", want AC_ON_CPU, AC_ON_CUDA or both");
    read_dims();
    read_inputs();
    read_outputs();
    read_attributes();
    further_extents_.settle(signature_, place_);
    read_contract();
    read_rows();
    read_kinks();
    read_extensions();
    require_kernels();
    OpDef out;
    signature_.forward_mode = op_.jvp != nullptr;
    out.signature = signature_;
    out.source = source_;
    const PluginKernels kernels = plugin_kernels(op_, signature_, double_backward_);
    out.kernel = kernels.kernel;
    read_forms(out);
    std::vector<OpDef> all{out};
    if (double_backward_ != nullptr) try {
        all.push_back(backward_as_op(out, kernels.double_backward));
      } catch (const Error& error) {
        place_.in("double_backward").fail(error.what());
      }
    for (const ac_variant& variant : variants_) all.push_back(with_kernels_of(variant, out));
    return all;
  }

 private:
  /// Tensors and attributes share the keys of case names and the names of formulas.
  void claim(const std::string& name, const Place& place) {
    static const std::set<std::string> kReserved = {"range", "cotangent", "layout", "seed", "pi", "inf", "with"};
    if (kReserved.contains(name)) place.fail("name, got '" + name + "', which is reserved");
    if (!names_.insert(name).second) place.fail("name, got '" + name + "' a second time");
  }

  void read_dims() {
    const auto dims = array(op_.dims, op_.dim_count, "dim", place_);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const Place at = place_.entry("dim", static_cast<int>(i));
      const std::string symbol = name_of(dims[i].symbol, "symbol", at);
      claim(symbol, at);
      const std::int64_t least = dims[i].least, most = dims[i].most == 0 ? kMostExtent : dims[i].most,
                         multiple = std::max(dims[i].multiple_of, 1);
      if (dims[i].multiple_of < 0 || least < 0 || most < least || most > kMostExtent)
        at.fail("multiple_of, least and most, got " + std::to_string(dims[i].multiple_of) + ", " +
                std::to_string(least) + " and " + std::to_string(dims[i].most) +
                ", want 0 or more, and least <= most <= 2^24");
      for (const std::int64_t extent : dims[i].samples)
        if (extent < std::max<std::int64_t>(least, 1) || extent > most || extent % multiple != 0)
          at.fail("sample extent, got " + std::to_string(extent) + ", want " +
                  std::to_string(std::max<std::int64_t>(least, 1)) + " to " + std::to_string(most) +
                  (multiple > 1 ? ", a multiple of " + std::to_string(multiple) : ""));
      signature_.dims.push_back({symbol, {dims[i].samples[0], dims[i].samples[1], dims[i].samples[2]}});
      limits_.push_back({symbol, least, most, multiple});
    }
    signature_.valid = [limits = limits_](const Dims& at, const Attributes&) {
      return std::all_of(limits.begin(), limits.end(), [&](const Limit& limit) {
        const auto found = at.find(limit.symbol);
        return found == at.end() ||
               (found->second >= limit.least && found->second <= limit.most && found->second % limit.multiple == 0);
      });
    };
  }

  void read_inputs() {
    const auto inputs = array(op_.inputs, op_.input_count, "input", place_);
    if (inputs.empty()) place_.fail("inputs, got none, want at least one");
    for (std::size_t i = 0; i < inputs.size(); ++i) read_input(inputs[i], place_.entry("input", static_cast<int>(i)));
    if (std::none_of(signature_.inputs.begin(), signature_.inputs.end(),
                     [](const TensorSpec& s) { return s.type == TypeRule::storage && !s.optional; }))
      place_.fail("inputs, got none of the storage type, want at least one that is not optional");
  }

  void read_input(const ac_input& input, const Place& unnamed) {
    TensorSpec spec;
    spec.name = name_of(input.name, "name", unnamed);
    const Place at = unnamed.in("'" + spec.name + "'");
    claim(spec.name, at);
    require_flags(input.flags, AC_OPTIONAL | AC_NO_GRADIENT | AC_ROW_INDEPENDENT | AC_ACCUMULATES, at);
    spec.dims = text(input.dims, kMostLine, "dims", at);
    further_extents_.note(spec.dims, signature_, at);
    spec.role = choice(input.role,
                       {Role::data, Role::weight, Role::bias, Role::mask, Role::index, Role::target, Role::probability,
                        Role::log_probability, Role::angle, Role::quantized},
                       "role", at);
    spec.type = choice(input.type, kTypes, "type", at);
    spec.domain = choice(input.domain, {Domain::any, Domain::positive, Domain::unit_interval}, "domain", at);
    spec.optional = (input.flags & AC_OPTIONAL) != 0;
    const bool integer = spec.type == TypeRule::i64 || spec.type == TypeRule::u8;
    spec.differentiable = (input.flags & AC_NO_GRADIENT) == 0 && !integer;
    const bool indexes = spec.role == Role::index || spec.role == Role::target;
    if (indexes != (spec.type == TypeRule::i64))
      at.fail("role and type, want AC_TYPE_I64 for AC_INDEX and AC_TARGET, and for these alone");
    if (spec.type == TypeRule::u8 && spec.role != Role::mask && spec.role != Role::quantized)
      at.fail("role, want AC_MASK or AC_QUANTIZED for AC_TYPE_U8");
    if (spec.role == Role::quantized && spec.type != TypeRule::u8) at.fail("type, want AC_TYPE_U8 for AC_QUANTIZED");
    spec.index_dim = text(input.index_dim, kMostName, "index_dim", at);
    if (indexes) require_dim(signature_, spec.index_dim, "index_dim", at);
    if (!indexes && !spec.index_dim.empty())
      at.fail("index_dim, got '" + spec.index_dim + "' for an input that is no index");
    if (spec.has_gradient())
      note_flags(gradient_name(spec.name), input.flags, at);
    else if ((input.flags & (AC_ROW_INDEPENDENT | AC_ACCUMULATES)) != 0)
      at.fail("flags, got a promise for the gradient of an input that has none");
    signature_.inputs.push_back(spec);
  }

  void note_flags(const std::string& name, std::uint32_t flags, const Place& place) {
    claim(name, place);
    if ((flags & AC_ROW_INDEPENDENT) != 0) signature_.launch.row_independent.push_back(name);
    if ((flags & AC_ACCUMULATES) != 0) signature_.launch.accumulates.push_back(name);
  }

  void read_outputs() {
    const auto outputs = array(op_.outputs, op_.output_count, "output", place_);
    if (outputs.empty()) place_.fail("outputs, got none, want at least one");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Place at = place_.entry("output", static_cast<int>(i));
      const OutputSpec spec =
          read_output(outputs[i], AC_ROW_INDEPENDENT | AC_ACCUMULATES | AC_NO_GRADIENT | AC_TO_BACKWARD, at);
      note_flags(spec.name, outputs[i].flags, at);
      claim(gradient_name(spec.name), at);
      const std::string over = text(outputs[i].in_place, kMostName, "in_place", at);
      if (!over.empty()) {
        const TensorSpec* input = signature_.input(over);
        if (input == nullptr || input->type != spec.type)
          at.fail("in_place, got '" + over + "', want an input of the same type");
        if (op_.form_count == 0 && spec.dims != input->dims)
          at.fail("dims, got '" + spec.dims + "', want those of '" + over + "', which it overwrites: '" + input->dims +
                  "'");
        signature_.launch.in_place.emplace_back(spec.name, over);
      }
      signature_.outputs.push_back(spec);
    }
    read_overwritten_cotangents();
    const auto saved = array(op_.saved, op_.saved_count, "saved", place_);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const Place at = place_.entry("saved", static_cast<int>(i));
      signature_.saved.push_back(read_output(saved[i], 0, at));
      // Its name stands in stored(...) alone, and may be that of a statement.
      if (names_.contains(signature_.saved.back().name))
        at.fail("name, got '" + signature_.saved.back().name + "' a second time");
      if (saved[i].in_place != nullptr) at.fail("in_place, got it for a saved tensor");
    }
  }

  /// Gradients that backward writes in the place of a cotangent.
  void read_overwritten_cotangents() {
    const auto inputs = array(op_.inputs, op_.input_count, "input", place_);
    std::set<std::int32_t> taken;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int32_t over = inputs[i].gradient_over;
      if (over == 0) continue;
      const TensorSpec& spec = signature_.inputs[i];
      const Place at = place_.entry("input", static_cast<int>(i)).in("'" + spec.name + "'");
      if (over < 0 || over > std::ssize(signature_.outputs))
        at.fail("gradient_over, got " + std::to_string(over) + ", want the number of an output, from 1, or 0");
      const OutputSpec& output = signature_.outputs[static_cast<std::size_t>(over - 1)];
      if (!spec.has_gradient()) at.fail("gradient_over, got one for an input without a gradient");
      if (spec.optional || output.type != spec.type)
        at.fail("gradient_over, got output '" + output.name +
                "', want one of the same type, of an input that is always there");
      if ((inputs[i].flags & AC_ACCUMULATES) != 0)
        at.fail("gradient_over, got one for a gradient that is added to its buffer");
      if (!taken.insert(over).second) at.fail("gradient_over, got output '" + output.name + "' a second time");
      signature_.launch.in_place.emplace_back(gradient_name(spec.name), gradient_name(output.name));
    }
  }

  OutputSpec read_output(const ac_output& output, std::uint32_t flags, const Place& at) {
    require_flags(output.flags, flags, at);
    OutputSpec spec = {name_of(output.name, "name", at), choice(output.type, kTypes, "type", at)};
    spec.dims = text(output.dims, kMostLine, "dims", at);
    spec.takes_cotangent = (output.flags & AC_NO_GRADIENT) == 0;
    spec.to_backward = (output.flags & AC_TO_BACKWARD) != 0;
    further_extents_.note(spec.dims, signature_, at);
    if (op_.form_count == 0 && output.dims == nullptr)
      at.fail("dims, got none, want its symbols: an op without a formula has no other way to say its shape");
    if (spec.type == TypeRule::parameter || spec.type == TypeRule::i64 || spec.type == TypeRule::u8)
      at.fail("type, got " + std::to_string(output.type) + ", want AC_TYPE_STORAGE or a floating type");
    return spec;
  }

  void read_attributes() {
    const auto attributes = array(op_.attributes, op_.attribute_count, "attribute", place_);
    for (std::size_t i = 0; i < attributes.size(); ++i) {
      const Place at = place_.entry("attribute", static_cast<int>(i));
      const ac_attribute& from = attributes[i];
      AttributeSpec spec = {name_of(from.name, "name", at), from.default_value};
      claim(spec.name, at);
      if (from.other_count < 0 || from.other_count > kMostEntries ||
          (from.other_count > 0 && from.other_values == nullptr))
        at.fail("other_values, got count " + std::to_string(from.other_count) +
                (from.other_values == nullptr ? " and a null pointer" : "") + ", want 0 to 64");
      for (std::int32_t k = 0; k < from.other_count; ++k) spec.other_values.emplace_back(from.other_values[k]);
      for (const AttributeValue& value : spec.other_values)
        if (!std::isfinite(std::get<double>(value))) at.fail("other_values, got a number that is not finite");
      if (!std::isfinite(from.default_value)) at.fail("default_value, got a number that is not finite");
      signature_.attributes.push_back(std::move(spec));
    }
  }

  void read_contract() {
    PrecisionContract& out = signature_.precision;
    out.math = math_set({}, place_);
    signature_.launch.strided = (op_.flags & AC_OP_STRIDED) != 0;
    signature_.cast = CastPolicy::promote;
    if (op_.contract == nullptr) return;
    const Place at = place_.in("contract");
    const ac_contract contract = sized(op_.contract, at);
    if (contract.storage_count < 0 || contract.storage_count > 6 ||
        (contract.storage_count > 0 && contract.storage == nullptr))
      at.fail("storage, got count " + std::to_string(contract.storage_count) + ", want 0 to 6 types");
    const auto one_of = [&](std::int32_t dtype, std::initializer_list<Dtype> known, const char* what,
                            const char* want) {
      for (const Dtype k : known)
        if (ac_dtype_of(k) == dtype) return k;
      at.fail(std::string(what) + ", got " + std::to_string(dtype) + ", want " + want);
    };
    if (contract.storage_count > 0) out.storage.clear();
    for (std::int32_t i = 0; i < contract.storage_count; ++i) {
      out.storage.push_back(one_of(contract.storage[i],
                                   {Dtype::fp64, Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2},
                                   "storage", "AC_FP64, AC_FP32, AC_FP16, AC_BF16, AC_E4M3FN or AC_E5M2"));
      if (std::count(out.storage.begin(), out.storage.end(), out.storage.back()) > 1)
        at.fail("storage, got a type twice");
    }
    if (contract.compute != 0 && contract.compute != AC_FP32)
      at.fail("compute, got " + std::to_string(contract.compute) + ", want AC_FP32");
    if (contract.accumulate != 0 && !accumulator_of(contract.accumulate, out.accumulate))
      at.fail("accumulate, got " + std::to_string(contract.accumulate) +
              ", want AC_FP32, AC_FP16, AC_BF16 or AC_TENSOR_CORE_ and ANY, V100, TURING, A100, ADA, H100 or B200");
    require_fp64_alone(at);
    if (contract.summation_depth < 0)
      at.fail("summation_depth, got " + std::to_string(contract.summation_depth) + ", want 0 or more");
    if (contract.summation_depth > 0 && out.accumulate.core != TensorCore::none)
      at.fail("summation_depth, got " + std::to_string(contract.summation_depth) + " with " + name(out.accumulate) +
              ", want 0: tensor cores have an order of their own");
    out.summation_depth = contract.summation_depth;
    out.flushes_subnormals = contract.flushes_subnormals != 0;
    out.atomics = contract.atomics != 0;
    read_range(contract, at);
    if (contract.math != nullptr) out.math = math_set(sized(contract.math, at.in("math")), at.in("math"));
  }

  /// In fp64 everything between storage and storage is fp64's: nothing else is bounded there.
  void require_fp64_alone(const Place& at) const {
    const PrecisionContract& precision = signature_.precision;
    if (std::find(precision.storage.begin(), precision.storage.end(), Dtype::fp64) == precision.storage.end()) return;
    if (precision.accumulate != Dtype::fp32)
      at.fail("accumulate, got " + name(precision.accumulate) +
              " with the storage type fp64, want none: in fp64 sums are fp64's (describe two ops)");
    for (const auto* list : {&signature_.saved, &signature_.outputs})
      for (const OutputSpec& read : *list)
        if ((list == &signature_.saved || read.to_backward) && dtype_of(read.type, Dtype::fp64) != Dtype::fp64)
          at.fail("storage, got fp64 and the tensor '" + read.name +
                  "', which backward reads in fewer bits, want AC_TYPE_STORAGE or AC_TYPE_FP32 for it");
  }

  void read_range(const ac_contract& contract, const Place& at) {
    RangeContract& out = signature_.range;
    if (!(contract.largest_input >= 0) || !std::isfinite(contract.largest_input))
      at.fail("largest_input, got " + number_text(contract.largest_input) + ", want 0 for none, or a size");
    if (contract.largest_input > 0 && op_.form_count == 0)
      at.fail("largest_input, got one for an op without a form, want one that says which numbers are due");
    out.largest_input = contract.largest_input;
    const double low = contract.smallest_scale, high = contract.largest_scale;
    if (low == 0 && high == 0) return;
    const auto power_of_two = [](double v) { return std::isnormal(v) && v > 0 && std::ldexp(1.0, std::ilogb(v)) == v; };
    if (!power_of_two(low) || !power_of_two(high) || low > high)
      at.fail("loss_scales, got " + number_text(low) + " and " + number_text(high) +
              ", want powers of two, the smaller one first");
    if (op_.backward == nullptr || op_.form_count == 0)
      at.fail("loss_scales, got some for an op without " +
              std::string(op_.backward == nullptr ? "a backward" : "a form") + ", want one that they can be tried on");
    out.smallest_scale = low;
    out.largest_scale = high;
  }

  static MathSet math_set(const ac_math& from, const Place& at) {
    MathSet out = from.cuda != 0 ? cuda_math() : glibc_math();
    const std::pair<double, double*> given[] = {
        {from.exp, &out.exp},     {from.expm1, &out.expm1}, {from.log, &out.log},
        {from.log1p, &out.log1p}, {from.tanh, &out.tanh},   {from.erf, &out.erf},
        {from.erfc, &out.erfc},   {from.sqrt, &out.sqrt},   {from.rsqrt, &out.rsqrt}};
    for (const auto& [ulps, to] : given) {
      if (!(ulps >= 0 && ulps <= 1e6) || (ulps > 0 && ulps < 0.5))
        at.fail("ulps, got " + number_text(ulps) + ", want 0 for the default, or 0.5 to 1e6");
      if (ulps > 0) {
        *to = ulps;
        out.name = "declared";
      }
    }
    return out;
  }

  void read_rows() {
    LaunchContract& launch = signature_.launch;
    launch.row_dim = text(op_.row_dim, kMostName, "row_dim", place_);
    for (const std::string& symbol : row_symbols(signature_)) require_dim(signature_, symbol, "row_dim", place_);
    if (launch.row_dim.empty() && !launch.row_independent.empty())
      place_.fail("row_dim, got none, want the symbol of the rows that '" + launch.row_independent.front() +
                  "' is independent along");
    launch.batch_invariant = (op_.flags & AC_OP_BATCH_INVARIANT) != 0;
    if (launch.batch_invariant && launch.row_independent.empty())
      place_.fail("batch_invariant, got it without rows, want outputs or gradients that are row-independent");
    if (launch.batch_invariant && signature_.precision.atomics)
      place_.fail("batch_invariant, got it beside atomics, want one of them: atomics leave the order of sums free");
  }

  void read_kinks() {
    const auto kinks = array(op_.kinks, op_.kink_count, "kink", place_);
    if (!kinks.empty() && op_.form_count == 0)
      place_.fail("kinks, got some for an op without a form, want one whose gradient is the convention");
    for (std::size_t i = 0; i < kinks.size(); ++i) {
      const Place at = place_.entry("kink", static_cast<int>(i));
      const std::string input = name_of(kinks[i].input, "input", at);
      const TensorSpec* spec = signature_.input(input);
      if (spec == nullptr || !spec->has_gradient())
        at.fail("input, got '" + input + "', want an input that has a gradient");
      const double value = kinks[i].at;
      const bool inside = spec->domain == Domain::any || (value > 0 && (spec->domain == Domain::positive || value < 1));
      if (!std::isfinite(value) || !inside)
        at.fail("at, got " + number_text(value) + ", want a number of the domain of '" + input + "'");
      signature_.kinks.push_back({input, value, one_line(kinks[i].convention, "convention", at)});
    }
  }

  /// What is required and not known cannot be given.
  void read_extensions() {
    const auto extensions = array(op_.extensions, op_.extension_count, "extension", place_);
    std::set<std::string> names;
    for (std::size_t i = 0; i < extensions.size(); ++i) {
      const Place at = place_.entry("extension", static_cast<int>(i));
      require_flags(extensions[i].flags, AC_EXTENSION_REQUIRED, at);
      const std::string name = one_line(extensions[i].name, "name", at);
      const std::size_t slash = name.rfind('/');
      const bool version = slash != std::string::npos && slash > 0 && slash + 1 < name.size() &&
                           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(slash) + 1, name.end(),
                                       [](char c) { return c >= '0' && c <= '9'; });
      if (!version) at.fail("name, got '" + name + "', want it with a version, as \"vendor.what/1\"");
      if (!names.insert(name).second) at.fail("name, got '" + name + "' a second time");
      if (name == AC_DOUBLE_BACKWARD)
        read_double_backward(static_cast<const ac_double_backward*>(extensions[i].data), at.in("double_backward"));
      else if (name == AC_VARIANTS)
        read_variants(static_cast<const ac_variants*>(extensions[i].data), at.in("variants"));
      else if (name == AC_SOURCE)
        source_ = source_line(static_cast<const ac_source*>(extensions[i].data), at.in("source"));
      else if ((extensions[i].flags & AC_EXTENSION_REQUIRED) != 0)
        at.fail(
            "got '" + name +
            "', which is required and which this ampcheck does not know, want a newer ampcheck or an op without it");
    }
  }

  void read_double_backward(const ac_double_backward* from, const Place& at) {
    if (from == nullptr) at.fail("data, got a null pointer, want an ac_double_backward");
    double_backward_ = sized(from, at).run;
    if (double_backward_ == nullptr) at.fail("run, got a null pointer");
  }

  void read_variants(const ac_variants* from, const Place& at) {
    if (from == nullptr) at.fail("data, got a null pointer, want an ac_variants");
    const ac_variants list = sized(from, at);
    variants_ = array(list.variants, list.variant_count, "variant", at);
    if (variants_.empty()) at.fail("variants, got none");
    std::set<std::string> names;
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      const Place one = at.entry("variant", static_cast<int>(i));
      const std::string name = name_of(variants_[i].name, "name", one);
      if (!names.insert(name).second) one.fail("name, got '" + name + "' a second time");
      if (variants_[i].forward == nullptr && variants_[i].backward == nullptr && variants_[i].jvp == nullptr)
        one.fail("kernels, got none, want a forward, a backward or a jvp that is not the op's");
      if (variants_[i].jvp != nullptr && op_.jvp == nullptr)
        one.fail("jvp, got one for an op without, want one for the op too");
      if (variants_[i].backward != nullptr && op_.backward == nullptr)
        one.fail("backward, got one for an op without, want one for the op too");
    }
  }

  /// An op of its own, with the kernels that the variant has in place of the op's.
  OpDef with_kernels_of(const ac_variant& variant, const OpDef& op) const {
    OpDef out = op;
    out.signature.name += std::string(".") + variant.name;
    ac_op own = op_;
    own.forward = variant.forward;
    own.backward = variant.backward;
    own.jvp = variant.jvp;
    own.user = variant.user;
    const kernels::Kernel kernel = plugin_kernels(own, out.signature, nullptr).kernel;
    if (variant.forward != nullptr) out.kernel.forward = kernel.forward;
    if (variant.backward != nullptr) out.kernel.backward = kernel.backward;
    if (variant.jvp != nullptr) out.kernel.jvp = kernel.jvp;
    return out;
  }

  void require_kernels() const {
    if (op_.forward == nullptr) place_.fail("forward, got a null pointer");
    const bool differentiable = std::any_of(signature_.inputs.begin(), signature_.inputs.end(),
                                            [](const TensorSpec& s) { return s.has_gradient(); });
    if (differentiable && op_.backward == nullptr)
      place_.fail("backward, got a null pointer, want a function (or AC_NO_GRADIENT for every input)");
    if (op_.jvp != nullptr && !differentiable)
      place_.fail("jvp, got one for an op without gradients, want what it can be judged by");
  }

  void read_forms(OpDef& out) {
    const auto forms = array(op_.forms, op_.form_count, "form", place_);
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const ac_form& form = forms[i];
      std::string name = one_line(form.name, "name", place_.entry("form", static_cast<int>(i)));
      if (name.empty()) name = "form " + std::to_string(i + 1);
      const Place at = place_.in("form '" + name + "'");
      require_flags(form.flags, AC_FORM_ONE_PASS, at);
      if (form.formula == nullptr) at.fail("formula, got a null pointer");
      pointed(at, [&] {
        reference::Form made =
            reference::form_from_text(signature_, name, text(form.formula, reference::kMaxFormulaLength, "formula", at),
                                      (form.flags & AC_FORM_ONE_PASS) != 0);
        made.formula = [inner = std::move(made.formula), at](reference::FormulaCall& call) {
          pointed(at, [&] { inner(call); });
        };
        try_recording(made, at);
        out.forms.push_back(std::move(made));
      });
    }
  }

  /// Errors of a formula with the op and form that it belongs to.
  template <class F>
  static void pointed(const Place& at, F work) {
    try {
      work();
    } catch (const reference::FormulaError& error) {
      at.fail(error.what());
    }
  }

  /// Shapes that do not fit and absent inputs show here, before anything runs.
  void try_recording(const reference::Form& form, const Place& at) const {
    for (reference::FormulaVariant variant : reference::formula_variants(signature_)) {
      std::vector<Dims> shapes{variant.dims};
      const auto add = [&](const Dims& dims) {
        if (!signature_.valid || signature_.valid(dims, variant.attributes)) shapes.push_back(dims);
      };
      for (std::size_t which = 0; which < 3 && variant.name.empty(); ++which)
        add(reference::standard_dims(signature_, which));
      Dims distinct;  // no two alike: square samples would hide a transpose
      for (std::size_t i = 0; i < signature_.dims.size(); ++i)
        distinct[signature_.dims[i].symbol] = static_cast<std::int64_t>(2 + i);
      add(distinct);
      for (const Dims& dims : shapes) {
        variant.dims = dims;
        require_small_inputs(signature_, dims, variant.attributes, at);
        const reference::CaseInputs inputs = reference::certification_inputs(signature_, variant, 1);
        const reference::Recording recording = [&] {
          try {
            return reference::record(signature_, form, variant.attributes, inputs);
          } catch (const EnvironmentError& error) {  // no case of this shape could be judged
            at.fail(error.what());
          }
        }();
        for (const auto& [output, over] : signature_.launch.in_place) {
          const auto input = inputs.shapes.find(over);
          for (const auto& [name, node] : recording.outputs)
            if (name == output && input != inputs.shapes.end() && !(node.shape() == input->second))
              at.fail("shape of '" + output + "', got " + node.shape().str() + ", want that of '" + over +
                      "', which it overwrites: " + input->second.str());
          for (const auto& [name, node] : recording.gradients)
            if (name == output && !(node.shape() == recording.cotangents.at(over).shape()))
              at.fail("shape of '" + output + "', got " + node.shape().str() + ", want that of '" + over +
                      "', which it overwrites: " + recording.cotangents.at(over).shape().str());
        }
      }
    }
  }

  struct Limit {
    std::string symbol;
    std::int64_t least, most, multiple;
  };

  ac_op op_;
  ac_kernel double_backward_ = nullptr;
  std::vector<ac_variant> variants_;
  SourceLine source_;
  Place place_;
  OpSignature signature_;
  std::vector<Limit> limits_;
  FurtherExtents further_extents_;
  std::set<std::string> names_;
};

}  // namespace

namespace {

/// The name of an op whose description is wrong, if that is not what is wrong with it.
std::string name_of_refused(const ac_op& op, const Place& place) {
  try {
    return text(op.name, kMostName, "name", place);
  } catch (const PluginError&) {
    return "";
  }
}

}  // namespace

std::vector<OpDef> ops_of(const ac_plugin* plugin, const std::string& where, std::vector<RefusedOp>* refused) {
  const Place place(where);
  if (plugin == nullptr) place.fail("description, got a null pointer");
  const ac_plugin from = sized(plugin, place);
  if (from.abi != AMPCHECK_OP_ABI)
    place.fail("abi, got " + std::to_string(from.abi) + ", want " + std::to_string(AMPCHECK_OP_ABI) +
               ": build the plug-in with the headers of this ampcheck");
  if (from.error != nullptr) place.fail(one_line(from.error, "error", place));
  const auto ops = array(from.ops, from.op_count, "op", place, kMostOps);
  if (ops.empty()) place.fail("ops, got none");
  std::vector<OpDef> out;
  std::set<std::string> names;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    std::vector<OpDef> read;
    try {
      read = OpReader(ops[i], place.entry("op", static_cast<int>(i))).read();
    } catch (const PluginError& error) {
      if (refused == nullptr) throw;
      refused->push_back({name_of_refused(ops[i], place), error.what(), static_cast<int>(i)});
    }
    for (OpDef& op : read) {
      if (!names.insert(op.signature.name).second) place.fail("op '" + op.signature.name + "', got it a second time");
      out.push_back(std::move(op));
    }
  }
  if (out.empty()) throw PluginError(refused->front().why);
  return out;
}

}  // namespace ampcheck::checks
