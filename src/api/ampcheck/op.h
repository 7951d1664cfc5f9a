// SPDX-License-Identifier: Apache-2.0
/// @file
/// The C++ door of ampcheck: describe your kernel and its formula in one file, build it as a shared library, check it.
///
///     #include <ampcheck/op.h>
///     AMPCHECK_OP(my_scale, op) {
///       op.input("x", "N D");
///       op.output("y");
///       op.dim("N", 5, 64, 2);  op.dim("D", 7, 129, 1025);               // extents of three sample shapes
///       op.formula([](ampcheck::op::Expr x) { return 2 * x; });
///       op.forward([]<class T>(ampcheck::op::Type<T>, const ampcheck::op::Call& call) {  // float, Half and BFloat16
///         auto x = call.view<const T>("x"); auto y = call.view<T>("y");
///         for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(2 * float(x[i]));
///       });
///       op.backward(...);                                                // reads "x", "dy", saved; writes "dx"
///     }
///
/// Build and check it: `c++ -std=c++20 -O2 -shared -fPIC my_scale.cpp -o libmy_scale.so && ampcheck check
/// ./libmy_scale.so`.
///
/// C++17 or later, no library: it fills the C structures of ampcheck/ampcheck_op.h. Everything here is hidden in the
/// plug-in, so that two plug-ins in one process share nothing. What is wrong in a description is reported when the
/// library is loaded; what can be seen here throws, and is reported then too.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <type_traits>

#include "ampcheck/call.h"
#include "ampcheck/expr.h"
#include "ampcheck/storage_types.h"

namespace ampcheck {
namespace op __attribute__((visibility("hidden"))) {

  // ---- What an op is. ----

  class Op;

  /// What is said of an input; each function returns it, for further ones. Without any: data of the storage type, any
  /// finite numbers, with a gradient.
  class Input {
   public:
    explicit Input(ac_input& at) : at_(at) {}  ///< Of Op::input().
    /// May be absent; the kernel then finds a null view.
    Input& optional() { return set(at_.flags, at_.flags | AC_OPTIONAL); }
    /// Has no gradient.
    Input& no_gradient() { return set(at_.flags, at_.flags | AC_NO_GRADIENT); }
    /// Backward writes its gradient over the cotangent of that output (1: the first one); both have one shape and type.
    Input& gradient_over(int output) { return set(at_.gradient_over, output); }
    /// A weight: drawn around 1.
    Input& weight() { return set(at_.role, AC_WEIGHT); }
    /// A bias: drawn around 0.
    Input& bias() { return set(at_.role, AC_BIAS); }
    /// May also be fp32 beside 16-bit data.
    Input& parameter() { return set(at_.type, AC_TYPE_PARAMETER); }
    /// 0 or 1, one byte.
    Input& mask() { return set(at_.role, AC_MASK).set(at_.type, AC_TYPE_U8); }
    /// Whole numbers from 0 to 255, one byte, from which the formula takes a zero point and makes values.
    Input& quantized() { return set(at_.role, AC_QUANTIZED).set(at_.type, AC_TYPE_U8); }
    /// Row numbers of another tensor, int64, from 0 to below the extent of that symbol.
    Input& index(const char* dim) { return set(at_.role, AC_INDEX).set(at_.type, AC_TYPE_I64).set(at_.index_dim, dim); }
    /// Classes, int64, from 0 to below the extent of that symbol.
    Input& target(const char* dim) { return index(dim).set(at_.role, AC_TARGET); }
    /// What it means: AC_DATA, AC_PROBABILITY, ...
    Input& role(int role) { return set(at_.role, role); }
    /// Its dtype in a case: AC_TYPE_STORAGE, AC_TYPE_FP32, ...
    Input& type(int type) { return set(at_.type, type); }
    /// Above 0 alone.
    Input& positive() { return set(at_.domain, AC_POSITIVE); }
    /// Between 0 and 1 alone.
    Input& unit_interval() { return set(at_.domain, AC_UNIT_INTERVAL); }

   private:
    template <class T, class V>
    Input& set(T& field, V value) {
      field = static_cast<T>(std::move(value));
      return *this;
    }

    ac_input& at_;
  };

  /// What is said of an output or a saved tensor.
  class Output {
   public:
    explicit Output(ac_output& at) : at_(at) {}  ///< Of Op::output() and Op::saved().
    /// Its dtype in a case: AC_TYPE_STORAGE (an output's default), AC_TYPE_FP32 (a saved tensor's), ...
    Output& type(int type) { return set(at_.type, type); }
    /// Takes no cotangent: no gradient flows back from it, as from running statistics.
    Output& no_gradient() { return set(at_.flags, at_.flags | AC_NO_GRADIENT); }
    /// Backward reads it: an output as forward wrote it, with its rounding. Saved tensors are read anyway.
    Output& to_backward() { return set(at_.flags, at_.flags | AC_TO_BACKWARD); }
    /// The kernel overwrites that input with it.
    Output& in_place(const char* input) { return set(at_.in_place, input); }
    /// Its symbols; needed where the op has no formula.
    Output& dims(const char* dims) { return set(at_.dims, dims); }

   private:
    template <class T, class V>
    Output& set(T& field, V value) {
      field = static_cast<T>(std::move(value));
      return *this;
    }

    ac_output& at_;
  };

  /// Which extents a dimension takes; any without a word, 0 among them.
  class Dim {
   public:
    explicit Dim(ac_dim& at) : at_(at) {}                        ///< Of Op::dim().
    Dim& multiple_of(int n) { return set(at_.multiple_of, n); }  ///< Multiples of n alone.
    Dim& least(std::int64_t n) { return set(at_.least, n); }     ///< n and more.
    Dim& most(std::int64_t n) { return set(at_.most, n); }       ///< n and less.

   private:
    template <class T, class V>
    Dim& set(T& field, V value) {
      field = static_cast<T>(std::move(value));
      return *this;
    }

    ac_dim& at_;
  };

  /// Another kernel of an op. What it has not, the op's own kernels do.
  class Variant {
   public:
    /// Made by Op::variant.
    explicit Variant(const char* name) {
      at_.struct_size = sizeof at_;
      at_.name = name;
      at_.user = this;
    }
    Variant(const Variant&) = delete;
    Variant& operator=(const Variant&) = delete;

    /// As Op::forward.
    template <class... Types, class F>
    Variant& forward(F kernel);
    /// As Op::backward.
    template <class... Types, class F>
    Variant& backward(F kernel);
    /// As Op::jvp.
    template <class... Types, class F>
    Variant& jvp(F kernel);

   private:
    friend class Op;
    ac_variant at_ = {};
    std::function<void(const Call&)> forward_, backward_, jvp_;
  };

  /// The description of one op. Texts given as const char* must be literals.
  class Op {
   public:
    /// Made by AMPCHECK_OP.
    explicit Op(const char* name) {
      op_.struct_size = sizeof op_;
      op_.name = name;
      op_.user = this;
      contract_.struct_size = sizeof contract_;
      math_.struct_size = sizeof math_;
    }
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;

    /// One line, for lists.
    Op& summary(const char* text) { return set(op_.summary, text); }
    /// dims: one extent a dimension, "N D" or "N D/2"; "" is a scalar. Its gradient is "d" and its name.
    Input input(const char* name, const char* dims) {
      ac_input& added = inputs_.emplace_back();
      added.struct_size = sizeof added;
      added.name = name;
      added.dims = dims;
      return Input(added);
    }
    /// Its shape follows from the formula.
    Output output(const char* name) { return added(outputs_, name, AC_TYPE_STORAGE); }
    /// Written by forward, read by backward, named by stored() in the formula.
    Output saved(const char* name) { return added(saved_, name, AC_TYPE_FP32); }
    /// A number with its default and other values to try.
    Op& attribute(const char* name, double value, std::vector<double> others = {}) {
      others_.push_back(std::move(others));
      attributes_.push_back(
          {sizeof(ac_attribute), static_cast<std::int32_t>(others_.back().size()), name, value, others_.back().data()});
      return *this;
    }
    /// A dimension symbol with its extents in three sample shapes.
    Dim dim(const char* symbol, std::int64_t first, std::int64_t second, std::int64_t third) {
      dims_.push_back({sizeof(ac_dim), 1, symbol, {first, second, third}, 0, 0});
      return Dim(dims_.back());
    }
    /// Row i of these outputs and gradients depends on row i of the inputs alone; rows lie along the leading axes: "N",
    /// "B H".
    Op& rows(const char* symbols, std::vector<std::string> of) {
      return set(op_.row_dim, symbols).set(rows_, std::move(of));
    }
    /// The bits of these rows depend neither on how many rows there are nor on where a row stands: their sums have one
    /// order.
    Op& batch_invariant() { return set(op_.flags, op_.flags | AC_OP_BATCH_INVARIANT); }
    /// These outputs or gradients are added to what their buffers hold.
    Op& accumulates(std::vector<std::string> of) { return set(accumulates_, std::move(of)); }

    /// The mathematics of the op: a lambda over Expr, or text.
    template <class F>
    Op& formula(F formula) {
      return form("formula", std::move(formula));
    }
    /// A further algebra that the kernel may follow; proved equal to the first in 100 digits.
    template <class F>
    Op& form(const char* name, F formula, bool one_pass = false) {
      forms_.push_back({sizeof(ac_form), one_pass ? static_cast<std::uint32_t>(AC_FORM_ONE_PASS) : 0u, name, nullptr});
      if constexpr (std::is_convertible_v<F, std::string>)
        texts_.push_back([text = std::string(formula)](const Op&) { return text; });
      else
        texts_.push_back([formula](const Op& op) {
          return detail::formula_text(formula, op.names(op.inputs_), op.names(op.attributes_), op.names(op.outputs_));
        });
      return *this;
    }

    /// A kernel takes (const Call&), or (Type<T>, const Call&) for any T, to be called with that of the storage type:
    /// float, Half or BFloat16, or one of those named here, forward<Float8E4M3, Float8E5M2>(kernel).
    template <class... Types, class F>
    Op& forward(F kernel) {
      return set(op_.forward, &run_forward).set(forward_, by_storage<Types...>(std::move(kernel)));
    }
    /// The same for the backward: reads inputs, saved tensors and "dy" of each output, writes "dx" of each input that
    /// has a gradient.
    template <class... Types, class F>
    Op& backward(F kernel) {
      return set(op_.backward, &run_backward).set(backward_, by_storage<Types...>(std::move(kernel)));
    }

    /// Forward mode: reads "x.tangent" of each input that has a gradient, writes "y.tangent" of each output.
    template <class... Types, class F>
    Op& jvp(F kernel) {
      return set(op_.jvp, &run_jvp).set(jvp_, by_storage<Types...>(std::move(kernel)));
    }

    /// The backward of the backward, checked as an op "<name>_backward": reads inputs, saved, "dy" of each output and
    /// "dgrad_x" of each gradient, writes "dx" of each input that has a gradient and "ddy" of each cotangent.
    template <class... Types, class F>
    Op& double_backward(F kernel) {
      second_ = {sizeof second_, 0, &run_double_backward};
      double_backward_ = by_storage<Types...>(std::move(kernel));
      return extension(AC_DOUBLE_BACKWARD, &second_);
    }

    /// Another kernel of this op, of those among which an autotuner picks: `op.variant("tile128").forward(kernel)`. It
    /// is checked as an op "<name>.tile128" by `ampcheck check --variants`.
    Variant& variant(const char* name) { return kernels_.emplace_back(name); }

    /// A value at which the op has no derivative, where data is drawn; the formula's gradient there is the convention,
    /// `words` its name.
    Op& kink(const char* input, double at, const char* words = nullptr) {
      kinks_.push_back({sizeof(ac_kink), 0, input, at, words});
      return *this;
    }
    /// What a later version or another tool knows of: "vendor.what/1".
    Op& extension(const char* name, const void* data, bool required = false) {
      const auto flags = required ? static_cast<std::uint32_t>(AC_EXTENSION_REQUIRED) : 0u;
      extensions_.push_back({sizeof(ac_extension), flags, name, data});
      return *this;
    }

    /// @name What the kernel promises
    /// Every interval is derived from it. Default: fp32, fp16 and bf16 storage, fp32 compute and accumulation in any
    /// order, glibc's functions, dense tensors, CPU, one result from call to call.
    /// @{

    /// Types that an op may store in: AC_FP32, AC_FP16, AC_BF16, AC_E4M3FN, AC_E5M2 (these two: see forward). A result
    /// beyond the range of e4m3fn, which has no infinity, may be NaN or its largest number.
    Op& storage(std::vector<std::int32_t> types) { return set(storage_, std::move(types)); }
    /// What sums are kept in: AC_FP32 (default), AC_FP16, AC_BF16, or tensor cores,
    /// AC_TENSOR_CORE_H100 and so on, AC_TENSOR_CORE_ANY (see ampcheck_op.h). With a type each partial sum may be
    /// rounded to it, so that a sum of n terms may be off by n - 1 roundings, 2^-24, 2^-11 or 2^-8, of the sum of the
    /// terms' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2).
    Op& accumulate(int accumulator) { return set(contract_.accumulate, accumulator); }
    /// The largest number of roundings that a term of a sum passes, for sums in a fixed tree: ceil(log2(n)) of a
    /// pairwise one. 0 (default): any order, one less than the number of terms.
    Op& summation_depth(int roundings) { return set(contract_.summation_depth, roundings); }
    /// Subnormal numbers may become zero on their way into and out of fp32 arithmetic (-ftz=true, FTZ and DAZ).
    Op& flushes_subnormals() { return set(contract_.flushes_subnormals, 1); }
    /// Results may differ from call to call, as sums by atomic additions do, each within its interval. Without this
    /// word a second call with the same tensors must give the same bits.
    Op& atomics() { return set(contract_.atomics, 1); }
    /// No number is lost on the way (AC203) at finite inputs up to this magnitude.
    Op& largest_input(double size) { return set(contract_.largest_input, size); }
    /// No number is lost on the way (AC203) at loss scales from `smallest` to `largest`, powers of two.
    Op& loss_scales(double smallest, double largest) {
      return set(contract_.smallest_scale, smallest).set(contract_.largest_scale, largest);
    }
    /// Largest errors of the kernel's functions, in ulps of fp32, to be set: `op.math().exp = 2`, `op.math().cuda = 1`.
    /// What stays 0 is what glibc documents ("Known Maximum Errors in Math Functions"), or CUDA (C++ Programming Guide,
    /// "Mathematical Functions"): see ac_math.
    ac_math& math() {
      contract_.math = &math_;
      return math_;
    }
    /// The kernel takes tensors of any strides, 0 among them; without this word all tensors are dense and row-major.
    Op& strided() { return set(op_.flags, op_.flags | AC_OP_STRIDED); }
    /// The kernel is not re-entrant: calls come one at a time. Without this word several threads call it.
    Op& serial() { return set(op_.flags, op_.flags | AC_OP_SERIAL); }
    /// Where its kernels run: AC_ON_CPU (default), AC_ON_CUDA, or both added up. Tensors lie in that device's memory.
    Op& devices(std::uint32_t devices) { return set(op_.devices, devices); }

    /// @}

    /// The description, once everything was said. Throws std::exception on what can be seen here.
    const ac_op& finish() {
      mark(rows_, AC_ROW_INDEPENDENT, "rows");
      mark(accumulates_, AC_ACCUMULATES, "accumulates");
      for (std::size_t i = 0; i < forms_.size(); ++i) {
        formulas_.push_back(texts_[i](*this));
        forms_[i].formula = formulas_.back().c_str();
      }
      // The C structures want arrays.
      give(op_.inputs, op_.input_count, input_array_ = {inputs_.begin(), inputs_.end()});
      give(op_.outputs, op_.output_count, output_array_ = {outputs_.begin(), outputs_.end()});
      give(op_.saved, op_.saved_count, saved_array_ = {saved_.begin(), saved_.end()});
      give(op_.dims, op_.dim_count, dim_array_ = {dims_.begin(), dims_.end()});
      give(op_.attributes, op_.attribute_count, attributes_);
      give(op_.forms, op_.form_count, forms_);
      give(contract_.storage, contract_.storage_count, storage_);
      give(op_.kinks, op_.kink_count, kinks_);
      for (const Variant& one : kernels_) variant_array_.push_back(one.at_);
      if (!variant_array_.empty()) {
        give(variants_.variants, variants_.variant_count, variant_array_);
        extension(AC_VARIANTS, &variants_);
      }
      give(op_.extensions, op_.extension_count, extensions_);
      op_.contract = &contract_;
      return op_;
    }

   private:
    friend class Variant;
    using KernelFn = std::function<void(const Call&)>;

    template <class T, class V>
    Op& set(T& field, V value) {
      field = static_cast<T>(std::move(value));
      return *this;
    }

    template <class... Types, class F>
    static KernelFn by_storage(F kernel) {
      if constexpr (sizeof...(Types) > 0)
        return [kernel](const Call& call) {
          const bool found = ((call.storage() == DtypeOf<Types>::value && (kernel(Type<Types>{}, call), true)) || ...);
          if (!found) throw std::runtime_error("no kernel for this storage type");
        };
      else if constexpr (std::is_invocable_v<F, Type<float>, const Call&>)
        return by_storage<float, Half, BFloat16>(std::move(kernel));
      else
        return kernel;
    }

    /// No exception may cross the C interface.
    static std::int32_t guarded(const KernelFn& kernel, const ac_call* call) {
      const char* unknown = "threw something that is no std::exception";
      try {
        kernel(Call(call));
        return 0;
      } catch (const std::exception& error) {
        call->host->set_error(call->host->context, error.what());
      } catch (...) {
        call->host->set_error(call->host->context, unknown);
      }
      return 1;
    }
    static std::int32_t run_forward(const ac_call* call) {
      return guarded(static_cast<const Op*>(call->user)->forward_, call);
    }
    static std::int32_t run_backward(const ac_call* call) {
      return guarded(static_cast<const Op*>(call->user)->backward_, call);
    }

    static std::int32_t run_double_backward(const ac_call* call) {
      return guarded(static_cast<const Op*>(call->user)->double_backward_, call);
    }
    static std::int32_t run_jvp(const ac_call* call) { return guarded(static_cast<const Op*>(call->user)->jvp_, call); }

    static Output added(std::deque<ac_output>& list, const char* name, int type) {
      ac_output& out = list.emplace_back();
      out.struct_size = sizeof out;
      out.name = name;
      out.type = type;
      return Output(out);
    }

    template <class List>
    static std::vector<std::string> names(const List& list) {
      std::vector<std::string> out;
      for (const auto& entry : list) out.push_back(entry.name);
      return out;
    }

    void mark(const std::vector<std::string>& list, std::uint32_t flag, const char* what) {
      for (const std::string& wanted : list) {
        std::uint32_t* flags = nullptr;
        for (ac_output& output : outputs_)
          if (wanted == output.name) flags = &output.flags;
        for (ac_input& input : inputs_)
          if (wanted == detail::joined({"d", input.name})) flags = &input.flags;
        if (flags != nullptr)
          *flags |= flag;
        else
          throw std::invalid_argument(
              detail::joined({what, " names '", wanted, "', want an output or the gradient of an input"}));
      }
    }

    template <class T>
    static void give(const T*& to, std::int32_t& count, const std::vector<T>& list) {
      to = list.data();
      count = static_cast<std::int32_t>(list.size());
    }

    ac_op op_ = {};
    std::deque<Variant> kernels_;
    std::vector<ac_variant> variant_array_;
    ac_variants variants_ = {sizeof(ac_variants), 0, nullptr};
    ac_contract contract_ = {};
    ac_math math_ = {};
    std::deque<ac_input> inputs_;  // deques: what Input, Output and Dim refer to stays
    std::deque<ac_output> outputs_, saved_;
    std::deque<ac_dim> dims_;
    std::vector<ac_input> input_array_;
    std::vector<ac_output> output_array_, saved_array_;
    std::vector<ac_dim> dim_array_;
    std::vector<ac_attribute> attributes_;
    std::deque<std::vector<double>> others_;
    std::vector<ac_form> forms_;
    std::vector<std::function<std::string(const Op&)>> texts_;
    std::deque<std::string> formulas_;
    std::vector<std::int32_t> storage_;
    std::vector<std::string> rows_, accumulates_;
    std::vector<ac_kink> kinks_;
    std::vector<ac_extension> extensions_;
    ac_double_backward second_ = {};
    KernelFn forward_, backward_, jvp_, double_backward_;
  };

  template <class... Types, class F>
  Variant& Variant::forward(F kernel) {
    forward_ = Op::by_storage<Types...>(std::move(kernel));
    at_.forward = [](const ac_call* call) -> std::int32_t {
      return Op::guarded(static_cast<const Variant*>(call->user)->forward_, call);
    };
    return *this;
  }
  template <class... Types, class F>
  Variant& Variant::backward(F kernel) {
    backward_ = Op::by_storage<Types...>(std::move(kernel));
    at_.backward = [](const ac_call* call) -> std::int32_t {
      return Op::guarded(static_cast<const Variant*>(call->user)->backward_, call);
    };
    return *this;
  }
  template <class... Types, class F>
  Variant& Variant::jvp(F kernel) {
    jvp_ = Op::by_storage<Types...>(std::move(kernel));
    at_.jvp = [](const ac_call* call) -> std::int32_t {
      return Op::guarded(static_cast<const Variant*>(call->user)->jvp_, call);
    };
    return *this;
  }

  namespace detail {

  struct Registered {
    const char* name;
    void (*describe)(Op&);
    ac_source source;
  };
  inline std::vector<Registered>& registered() {
    static std::vector<Registered> list;
    return list;
  }
  inline bool add(const char* name, void (*describe)(Op&), const char* file, int line) {
    registered().push_back({name, describe, {sizeof(ac_source), line, file}});
    return true;
  }

  struct Description {
    ac_plugin plugin = {};
    std::deque<Op> ops;
    std::vector<ac_op> array;
    std::string error;
  };

  inline const ac_plugin* description() {
    static Description* const made = [] {
      auto* out = new Description;  // lives as long as the library
      out->plugin.struct_size = sizeof(ac_plugin);
      out->plugin.abi = AMPCHECK_OP_ABI;
      for (const Registered& entry : registered()) try {
          entry.describe(out->ops.emplace_back(entry.name).extension(AC_SOURCE, &entry.source));
          out->array.push_back(out->ops.back().finish());
        } catch (const std::exception& error) {
          out->error = joined({"op '", entry.name, "': ", error.what()});
          out->plugin.error = out->error.c_str();
          break;
        }
      out->plugin.ops = out->array.data();
      out->plugin.op_count = static_cast<std::int32_t>(out->array.size());
      return out;
    }();
    return &made->plugin;
  }

  }  // namespace detail

}  // namespace )
}  // namespace ampcheck

/// The exported function of the library.
// Every file that includes this defines the exported function; the linker keeps one.
extern "C" AMPCHECK_EXPORT inline __attribute__((used)) const ac_plugin* ampcheck_plugin_v1(void) {
  return ampcheck::op::detail::description();
}

/// Describes an op of this library: `AMPCHECK_OP(my_op, op) { op.input(...); ... }`. NAME is the op's name, VARIABLE
/// its Op.
#define AMPCHECK_OP(NAME, VARIABLE)                                                      \
  static void ampcheck_describe_##NAME(::ampcheck::op::Op&);                             \
  [[maybe_unused]] static const bool ampcheck_added_##NAME =                             \
      ::ampcheck::op::detail::add(#NAME, &ampcheck_describe_##NAME, __FILE__, __LINE__); \
  static void ampcheck_describe_##NAME(::ampcheck::op::Op& VARIABLE)
