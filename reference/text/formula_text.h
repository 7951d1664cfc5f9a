// SPDX-License-Identifier: Apache-2.0
// Formulas as text, for ops that are not compiled with ampcheck:
//
//   inv_rms = stored(inv_rms, rsqrt(mean(x^2, -1) + eps))
//   n = x * inv_rms  with dx = inv_rms * (dn - n * mean(dn * n, -1))
//   y = given(weight, n * weight, n)
//
// The text records the same graph as the same formula in C++ (reference/graph/expr.h): every arithmetic, the adjoint
// and the certificate follow. Syntax: reference/text/formula_parse.h. Every statement names a value; those named as
// outputs are the outputs. Names are inputs, attributes, dimension symbols (their extent) and earlier statements; "h =
// D / 2" is an extent too.
//
//   x + y, -, *, /, @ (matmul), -x, x^2, x < y, <=, >, >=, ==          NumPy's broadcasting; comparisons are 0 or 1
//   exp expm1 log log1p tanh erf erfc sin cos sqrt rsqrt               elementwise; angles in radians
//   sigmoid abs square softplus                                        elementwise
//   pow(x, exponent)                 NaN where x < 0 and the exponent is no whole number; x^0 is 1
//   maximum(a, b) minimum(a, b) where(condition, yes, no)
//   sum mean max min (x, axis...)    axes stay with extent 1; sum and mean without axis: of all elements, shape [1]
//   first_max(x, axis)               1 at the first maximum along the axis, else 0
//   cumsum(x, axis, reversed=1)      sums of the elements up to each one; reversed: from each one on
//   matmul(a, b, transpose_a=1, transpose_b=1)                         batched over the leading axes
//   gather(table, index) scatter_add(x, index, rows) one_hot(index, n) index: an integer input
//   reshape(x, extents...) (one may be -1) transpose(x, order...) (no order: the last two) squeeze(x, axis)
//   slice(x, axis, begin, end) (negative: from the end) concat(a, b, ..., axis=-1) arange(n)
//   unfold(image, kh, kw, stride=1, padding=0)
//   stored(name, x)                  the kernel may keep this value as its saved tensor `name`
//   rounded(x)                       the kernel may round this value to the storage type, and keeps it nowhere
//   stop_gradient(x)                 a shift that cancels
//   given(input, a, b)               a where the optional input is there, else b
//   size(x, axis)                    an extent; pi; inf
//   floor(m / n)                     of whole numbers, rounded down; m / n alone has to be whole where a whole number
//   is wanted
//
// `with dx = ...` gives a value an adjoint of its own, as kernels write it: dn is its cotangent, dx what x receives.
// Numbers are exact decimals and fractions: 0.1 and 1/3 are those numbers in 100 digits, and balls in a narrower type.
#pragma once

#include <string>

#include "reference/graph/formula.h"
#include "reference/text/formula_parse.h"

namespace ampcheck::reference {

/// Largest number of elements of any value of a formula in text; four times as many may be listed or moved one by one
/// (arange, gather, slice ...) by all of it: a typing error must not take the machine's memory.
inline constexpr std::int64_t kMaxFormulaElements = std::int64_t{1} << 26;

/// Parses a formula and resolves its names against the signature. Recording throws FormulaError where shapes do not fit
/// or an absent optional input is used outside given(). Throws FormulaError.
Form form_from_text(const OpSignature& signature, std::string name, std::string text, bool one_pass = false,
                    std::int64_t most_elements = kMaxFormulaElements);

}  // namespace ampcheck::reference
