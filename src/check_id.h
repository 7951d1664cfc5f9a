// SPDX-License-Identifier: Apache-2.0
// What one check of a case is about.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace ampcheck {

/// The identity of a check. Its text is printed from it and never read again.
struct CheckId {
  /// In the order of their texts, so that ids sort as they print.
  enum class Kind : std::uint8_t {
    backward,          ///< values of a gradient
    batch_invariance,  ///< rows alone against the same rows among others
    bias,              ///< sums of a tensor round to one side
    bias_untested,     ///< a shape along `dim` that the kernel refused
    call,              ///< the call itself: it threw, crashed or hung
    correlation,       ///< errors of a row go together
    forward,           ///< values of an output or saved tensor
    guards,            ///< memory around a tensor
    history,           ///< a call after other calls
    homogeneity,       ///< backward(2^k g) = 2^k backward(g)
    inputs_unchanged,
    jvp,          ///< values of a tangent
    jvp_product,  ///< forward mode against backward
    loss_scale,   ///< a note: the loss scales that lose nothing
    poison,       ///< what the buffer held before
    printed,      ///< a note: what the kernel printed
    range,        ///< numbers that are lost inside the declared range
    repeats,
    row_independence,
    simulated,  ///< what a simulated GPU saw: `dim` says of what kind
    written,    ///< every element of a tensor too large to judge whole
  };
  Kind kind = Kind::call;
  std::string tensor = {};             ///< empty where it is about no tensor
  std::string dim = {};                ///< of bias_untested
  int probe = -1;                      ///< of a backward; -1: not of one probe
  bool at_saved = false;               ///< judged at the kernel's own saved values
  std::optional<int> loss_scale = {};  ///< of range: log2 of it

  friend std::strong_ordering operator<=>(const CheckId&, const CheckId&) = default;
};

/// "forward y", "backward dx probe 3 at saved", "guards x", "range dx at loss scale 2^15".
std::string name(const CheckId& id);

/// Compares numbers with intervals or products; relations compare bits of two runs.
bool judges_values(const CheckId& id);
/// Of an output or a gradient: forward or backward values.
bool is_of_pass(const CheckId& id);

}  // namespace ampcheck
