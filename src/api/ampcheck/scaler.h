// SPDX-License-Identifier: Apache-2.0
/// @file
/// The C++ face of ampcheck/ampcheck_scaler.h: a class that is a loss scaler becomes a library that ampcheck audits.
///
///     #include <ampcheck/scaler.h>
///     struct MyScaler {
///       explicit MyScaler(const ac_scaler_setup& setup);
///       double scale(double loss);
///       void unscale(ampcheck::scaler::Gradients gradients);
///       bool step(ampcheck::scaler::Gradients gradients);       // whether the optimizer may make its step
///       void update();
///       double get_scale() const;
///       std::string save() const;
///       void load(const std::string& state);
///       void set_growth_interval(int growth_interval);          // this one may be missing
///     };
///     AMPCHECK_SCALER(MyScaler)
///
/// Build and audit it: `c++ -std=c++17 -O2 -shared -fPIC my_scaler.cpp -o libmy_scaler.so && ampcheck audit scaler
/// ./libmy_scaler.so`.
///
/// C++17 or later, no library. A call that throws is refused: that is right for calls in a wrong order.
#pragma once

#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "ampcheck/ampcheck_scaler.h"

namespace ampcheck {
namespace scaler __attribute__((visibility("hidden"))) {

  /// The gradients of one optimizer, fp32.
  class Gradients {
   public:
    explicit Gradients(const ac_gradients& at) : at_(&at) {}                     ///< Of a call.
    int optimizer() const { return at_->optimizer; }                             ///< 0 or 1.
    bool exist() const { return at_->values != nullptr; }                        ///< False before any backward.
    float* begin() const { return at_->values; }                                 ///< The first one.
    float* end() const { return exist() ? at_->values + at_->count : nullptr; }  ///< Behind the last one.

   private:
    const ac_gradients* at_;
  };

  namespace detail {

  template <class Scaler, class = void>
  struct SetsInterval : std::false_type {};
  template <class Scaler>
  struct SetsInterval<Scaler, std::void_t<decltype(std::declval<Scaler&>().set_growth_interval(1))>> : std::true_type {
  };

  // The functions of ac_scaler for a class.
  template <class Scaler>
  struct Face {
    Scaler scaler;
    std::string error;

    template <class Work>
    static std::int32_t guarded(void* self, Work work) {
      Face& face = *static_cast<Face*>(self);
      try {
        work(face.scaler);
        return 0;
      } catch (const std::exception& thrown) {
        face.error = thrown.what();
      } catch (...) {
        face.error = "an exception that is no std::exception";
      }
      return 1;
    }
    static void* create(const ac_scaler_setup* setup) {
      try {
        return new Face{Scaler(*setup), {}};
      } catch (...) {
        return nullptr;
      }
    }
    static void destroy(void* self) { delete static_cast<Face*>(self); }
    static std::int32_t scale(void* self, double loss, double* scaled) {
      return guarded(self, [&](Scaler& s) { *scaled = s.scale(loss); });
    }
    static std::int32_t unscale(void* self, const ac_gradients* gradients) {
      return guarded(self, [&](Scaler& s) { s.unscale(Gradients(*gradients)); });
    }
    static std::int32_t step(void* self, const ac_gradients* gradients, std::int32_t* update) {
      return guarded(self, [&](Scaler& s) { *update = s.step(Gradients(*gradients)) ? 1 : 0; });
    }
    static std::int32_t update(void* self) {
      return guarded(self, [](Scaler& s) { s.update(); });
    }
    static double get_scale(void* self) { return static_cast<Face*>(self)->scaler.get_scale(); }
    static std::int64_t save(void* self, void* buffer, std::int64_t room) {
      std::string state;
      if (guarded(self, [&](Scaler& s) { state = s.save(); }) != 0) return -1;
      const auto bytes = static_cast<std::int64_t>(state.size());
      if (bytes <= room && bytes > 0) std::memcpy(buffer, state.data(), state.size());
      return bytes;
    }
    static std::int32_t load(void* self, const void* state, std::int64_t bytes) {
      return guarded(self, [&](Scaler& s) {
        s.load(std::string(static_cast<const char*>(state), static_cast<std::size_t>(bytes)));
      });
    }
    static const char* last_error(void* self) { return static_cast<Face*>(self)->error.c_str(); }
    static std::int32_t set_growth_interval(void* self, std::int32_t growth_interval) {
      return guarded(self, [&](Scaler& s) {
        if constexpr (SetsInterval<Scaler>::value) s.set_growth_interval(growth_interval);
      });
    }
    static const ac_scaler* table(const char* name) {
      static const ac_scaler made = {sizeof(ac_scaler),
                                     AMPCHECK_SCALER_ABI,
                                     name,
                                     &create,
                                     &destroy,
                                     &scale,
                                     &unscale,
                                     &step,
                                     &update,
                                     &get_scale,
                                     &save,
                                     &load,
                                     &last_error,
                                     SetsInterval<Scaler>::value ? &set_growth_interval : nullptr};
      return &made;
    }
  };

  }  // namespace detail

}  // namespace )
}  // namespace ampcheck

/// Exports a class as the scaler of this library: once in it, outside of any namespace.
#define AMPCHECK_SCALER(CLASS)                                           \
  extern "C" AMPCHECK_EXPORT const ac_scaler* ampcheck_scaler_v1(void) { \
    return ::ampcheck::scaler::detail::Face<CLASS>::table(#CLASS);       \
  }
