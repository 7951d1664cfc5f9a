// SPDX-License-Identifier: Apache-2.0
// Arithmetic of f16, bf16 and pairs of them: in fp32 or fp64, rounded once.
#include <algorithm>
#include <cmath>

#include "src/ptx/decode.h"
#include "src/ptx/fuse.h"
#include "src/ptx/rounded.h"

namespace ampcheck::ptx {

namespace {

// fp32 holds more than twice the digits of either format: one operation in it, rounded again, is rounded once.
template <class H>
struct Sum {
  H operator()(H a, H b) const { return narrowed(widened(a) + widened(b), H{}); }
};
template <class H>
struct Difference {
  H operator()(H a, H b) const { return narrowed(widened(a) - widened(b), H{}); }
};
template <class H>
struct Product {
  H operator()(H a, H b) const { return narrowed(widened(a) * widened(b), H{}); }
};
template <class H>
struct Largest {
  H operator()(H a, H b) const { return narrowed(extremum<float, true, false>(widened(a), widened(b)), H{}); }
};
template <class H>
struct Smallest {
  H operator()(H a, H b) const { return narrowed(extremum<float, false, false>(widened(a), widened(b)), H{}); }
};
template <class H>
struct LargestOrNan {
  H operator()(H a, H b) const { return narrowed(extremum<float, true, true>(widened(a), widened(b)), H{}); }
};
template <class H>
struct SmallestOrNan {
  H operator()(H a, H b) const { return narrowed(extremum<float, false, true>(widened(a), widened(b)), H{}); }
};
template <class H>
struct Negated {
  H operator()(H a) const { return {static_cast<std::uint16_t>(a.bits ^ 0x8000u)}; }
};
template <class H>
struct Magnitude {
  H operator()(H a) const { return {static_cast<std::uint16_t>(a.bits & 0x7fffu)}; }
};
template <class H>
struct Exp2 {
  H operator()(H a) const { return narrowed(float_to_odd(std::exp2(static_cast<double>(widened(a)))), H{}); }
};
template <class H>
struct Tanh {
  H operator()(H a) const { return narrowed(float_to_odd(std::tanh(static_cast<double>(widened(a)))), H{}); }
};
template <class H>
struct Fused {
  H operator()(H a, H b, H c) const { return fused(a, b, c); }
};
template <class H>
struct FusedMinusSum {
  H operator()(H a, H b, H c) const { return fused(a, b, Negated<H>{}(c)); }
};
template <class H>
struct FusedMinusProduct {
  H operator()(H a, H b, H c) const { return fused(Negated<H>{}(a), b, c); }
};
template <class H>
struct FusedRelu {
  H operator()(H a, H b, H c) const {
    const H out = fused(a, b, c);
    return widened(out) < 0 ? H{0} : out;
  }
};
template <class F>
struct Saturated {
  template <class H, class... A>
  H operator()(H a, A... more) const {
    return narrowed(saturated(widened(F{}(a, more...))), H{});
  }
};

/// Both halves of a word.
template <class H, class F>
struct Pairs {
  template <class... W>
  std::uint32_t operator()(W... words) const {
    const std::uint32_t low = F{}(H{static_cast<std::uint16_t>(words)}...).bits,
                        high = F{}(H{static_cast<std::uint16_t>(words >> 16)}...).bits;
    return low | high << 16;
  }
};

struct Form {
  bool pair = false, sat = false;
};

using W = std::uint32_t;

template <class H, class F>
Execute one(Form form) {
  return form.pair ? &map1<W, W, Pairs<H, F>> : &map1<H, H, F>;
}
template <class H, class F>
Execute function(Form form) {
  return form.pair ? &each1<W, W, Pairs<H, F>> : &each1<H, H, F>;
}
template <class H, class F>
Execute two(Form form) {
  return form.pair ? &map2<W, W, Pairs<H, F>> : &map2<H, H, F>;
}
template <class H, class F>
Execute three(Form form) {
  return form.pair ? &each3<W, W, Pairs<H, F>> : &each3<H, H, F>;
}
template <class H, class F>
Execute maybe_saturated(Form form) {
  return form.sat ? two<H, Saturated<F>>(form) : two<H, F>(form);
}

template <class H>
Execute chosen(const std::string& root, Words& words, Form form) {
  const bool keeps_nan = words.take("NaN"), relu = words.take("relu");
  if (relu && root != "fma") return nullptr;
  if (root == "add") return maybe_saturated<H, Sum<H>>(form);
  if (root == "sub") return maybe_saturated<H, Difference<H>>(form);
  if (root == "mul") return maybe_saturated<H, Product<H>>(form);
  if (root == "max") return keeps_nan ? two<H, LargestOrNan<H>>(form) : two<H, Largest<H>>(form);
  if (root == "min") return keeps_nan ? two<H, SmallestOrNan<H>>(form) : two<H, Smallest<H>>(form);
  if (words.take(kMinusSum)) return three<H, FusedMinusSum<H>>(form);
  if (words.take(kMinusProduct)) return three<H, FusedMinusProduct<H>>(form);
  if (root == "fma")
    return relu       ? three<H, FusedRelu<H>>(form)
           : form.sat ? three<H, Saturated<Fused<H>>>(form)
                      : three<H, Fused<H>>(form);
  if (root == "neg") return one<H, Negated<H>>(form);
  if (root == "abs") return one<H, Magnitude<H>>(form);
  if (root == "ex2") return function<H, Exp2<H>>(form);
  if (root == "tanh") return function<H, Tanh<H>>(form);
  return nullptr;
}

}  // namespace

bool decode_half(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  Type t;
  if (!words.take_type(t) || !(t.kind == 'h' || (t.kind == 'f' && t.bits == 16))) return false;
  Form form;
  const int operands = root == "fma" ? 3 : root == "neg" || root == "abs" || root == "ex2" || root == "tanh" ? 1 : 2;
  form.pair = t.lanes == 2;
  form.sat = words.take("sat");
  words.take("rn");
  words.take("approx");
  const bool ftz = words.take("ftz");
  if (ftz && t.kind == 'f') d.fail("got '.ftz' of halves, which device ptx does not run");
  in.run = t.kind == 'h' ? chosen<BFloat>(root, words, form) : chosen<Half>(root, words, form);
  if (in.run == nullptr) return false;
  const auto count = static_cast<std::size_t>(operands + 1);
  d.want_operands(count, count);
  in.to[0] = d.result(d.operand(0), t);
  for (std::size_t i = 1; i < count; ++i) in.from[i - 1] = d.value(d.operand(i), t);
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
