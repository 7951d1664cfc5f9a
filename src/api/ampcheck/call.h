// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a kernel of ampcheck/op.h sees: one call, its tensors as typed views, its attributes.
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "ampcheck/ampcheck_op.h"
#include "ampcheck/expr.h"
#include "ampcheck/storage_types.h"

namespace ampcheck {
namespace op __attribute__((visibility("hidden"))) {

  /// Which dtype a C++ type has, as `value`; specialise it for types of your own.
  template <class T>
  struct DtypeOf;
  /// double.
  template <>
  struct DtypeOf<double> : std::integral_constant<int, AC_FP64> {};
  /// float.
  template <>
  struct DtypeOf<float> : std::integral_constant<int, AC_FP32> {};
  /// Half.
  template <>
  struct DtypeOf<Half> : std::integral_constant<int, AC_FP16> {};
  /// BFloat16.
  template <>
  struct DtypeOf<BFloat16> : std::integral_constant<int, AC_BF16> {};
  /// Float8E4M3.
  template <>
  struct DtypeOf<Float8E4M3> : std::integral_constant<int, AC_E4M3FN> {};
  /// Float8E5M2.
  template <>
  struct DtypeOf<Float8E5M2> : std::integral_constant<int, AC_E5M2> {};
  /// std::int32_t.
  template <>
  struct DtypeOf<std::int32_t> : std::integral_constant<int, AC_I32> {};
  /// std::int64_t.
  template <>
  struct DtypeOf<std::int64_t> : std::integral_constant<int, AC_I64> {};
  /// std::uint8_t.
  template <>
  struct DtypeOf<std::uint8_t> : std::integral_constant<int, AC_U8> {};

  // ---- What a kernel sees. ----

  /// A borrowed tensor; false if it is absent. Strides in elements.
  template <class T>
  class View {
   public:
    View() = default;  ///< Absent.
    /// Of a tensor whose elements are T.
    explicit View(const ac_tensor& tensor) : dl_(&tensor.dl), data_(static_cast<T*>(tensor.dl.data)) {
      for (int i = rank() - 1; i >= 0; --i) {
        dense_ = dense_ && (extent(i) == 1 || stride(i) == size_);
        size_ *= extent(i);
      }
    }

    explicit operator bool() const { return dl_ != nullptr; }           ///< Whether it is there.
    T* data() const { return data_; }                                   ///< The first element.
    int rank() const { return dl_->ndim; }                              ///< Number of axes.
    std::int64_t extent(int axis) const { return dl_->shape[axis]; }    ///< Of axis 0 to rank() - 1.
    std::int64_t stride(int axis) const { return dl_->strides[axis]; }  ///< In elements.
    std::int64_t size() const { return size_; }                         ///< Number of elements.
    /// Extent of the last axis; 1 without axes.
    std::int64_t columns() const { return rank() == 0 ? 1 : extent(rank() - 1); }
    /// Number of rows along the last axis.
    std::int64_t rows() const {
      std::int64_t count = 1;
      for (int i = 0; i + 1 < rank(); ++i) count *= extent(i);
      return count;
    }
    /// By row-major index, through the strides.
    T& operator[](std::int64_t index) const {
      if (dense_) return data_[index];
      std::int64_t at = 0;
      for (int i = rank() - 1; i >= 0; --i) {
        at += index % extent(i) * stride(i);
        index /= extent(i);
      }
      return data_[at];
    }
    /// By one index an axis.
    template <class... I>
    T& operator()(I... index) const {
      int axis = 0;
      std::int64_t at = 0;
      ((at += static_cast<std::int64_t>(index) * stride(axis++)), ...);
      return data_[at];
    }

   private:
    const ac_dltensor* dl_ = nullptr;
    T* data_ = nullptr;
    std::int64_t size_ = 1;
    bool dense_ = true;
  };

  /// One call of a kernel: its tensors and attributes.
  class Call {
   public:
    /// Of the C interface.
    explicit Call(const ac_call* call) : call_(call) {}

    /// A tensor of this call: input, output, saved, cotangent ("dy" of output y), gradient ("dx" of input x), in
    /// forward mode "x.tangent" and "y.tangent", in a double backward "dgrad_x" and "ddy". Throws if it is absent or of
    /// another dtype.
    template <class T>
    View<T> view(const std::string& name) const {
      if (View<T> found = find<T>(name)) return found;
      throw std::runtime_error(detail::joined({"no tensor '", name, "' in this call, which has ", names()}));
    }
    /// The same; false if it is absent (an optional input, a gradient that nobody wants).
    template <class T>
    View<T> find(const std::string& name) const {
      const ac_tensor* tensor = find(name);
      if (tensor == nullptr) return {};
      if (tensor->dtype != DtypeOf<std::remove_const_t<T>>::value)
        throw std::runtime_error(detail::joined({"tensor '", name, "' has another dtype than the view"}));
      return View<T>(*tensor);
    }
    /// The value of an attribute. Throws for a name that the op has not.
    double number(const std::string& attribute) const {
      for (std::int32_t i = 0; i < call_->attribute_count; ++i)
        if (attribute == call_->attributes[i].name) return call_->attributes[i].value;
      std::string known;
      for (std::int32_t i = 0; i < call_->attribute_count; ++i)
        known.append(i == 0 ? "" : ", ").append(call_->attributes[i].name);
      throw std::runtime_error(
          detail::joined({"no attribute '", attribute, "', the op has ", known.empty() ? "none" : known}));
    }
    int storage() const { return call_->storage; }  ///< Storage dtype of the case: AC_FP32, ...
    void* stream() const { return call_->stream; }  ///< cudaStream_t; null on the CPU, and for the default stream.
    /// Zeroed host memory for `count` elements until the call returns. Throws std::bad_alloc.
    template <class T>
    T* scratch(std::int64_t count) const {
      void* memory = call_->host->alloc(call_->host->context, static_cast<std::size_t>(count) * sizeof(T), alignof(T));
      if (memory == nullptr) throw std::bad_alloc();
      std::memset(memory, 0, static_cast<std::size_t>(count) * sizeof(T));
      return static_cast<T*>(memory);
    }
    /// A line on standard error.
    void log(const std::string& message) const { call_->host->log(call_->host->context, AC_LOG_INFO, message.c_str()); }
    /// Whether the result is no longer wanted: then return soon.
    bool should_cancel() const { return call_->host->should_cancel(call_->host->context) != 0; }
    const ac_call& raw() const { return *call_; }  ///< The call of the C interface.

   private:
    /// Calls take(tensor) for every tensor that is there, until it returns true.
    template <class F>
    void each(F take) const {
      bool done = false;
      const auto in = [&](const ac_tensor* const* list, std::int32_t count) {
        for (std::int32_t i = 0; list != nullptr && i < count && !done; ++i)
          if (list[i] != nullptr) done = take(*list[i]);
      };
      const ac_call& c = *call_;
      in(c.inputs, c.input_count);
      in(c.outputs, c.output_count);
      in(c.saved, c.saved_count);
      in(c.cotangents, c.output_count);
      in(c.gradients, c.input_count);
      in(c.tangents, c.input_count);
      in(c.output_tangents, c.output_count);
      if (c.struct_size < offsetof(ac_call, cotangent_gradients) + sizeof c.cotangent_gradients)
        return;  // a host that knows of none
      in(c.gradient_cotangents, c.input_count);
      in(c.cotangent_gradients, c.output_count);
    }
    const ac_tensor* find(const std::string& name) const {
      const ac_tensor* found = nullptr;
      each([&](const ac_tensor& tensor) { return name == tensor.name && (found = &tensor) != nullptr; });
      return found;
    }
    std::string names() const {
      std::string out;
      each([&](const ac_tensor& tensor) {
        out.append(out.empty() ? "" : ", ").append(tensor.name);
        return false;
      });
      return out;
    }

    const ac_call* call_;
  };

  /// The first argument of a kernel that is written once for every storage type.
  template <class T>
  struct Type {
    using type = T;  ///< The type.
  };

}  // namespace op
}  // namespace ampcheck
