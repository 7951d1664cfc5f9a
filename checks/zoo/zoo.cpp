// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/zoo.h"

#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

std::span<const DefectClass> defect_classes() {
  static constexpr DefectClass kClasses[] = {
      {1, "missing constant factor or scale", "NeMo-Automodel#2428"},
      {2, "sign error", "pytorch#59615"},
      {3, "dot term missing", "nki-samples#81"},
      {4, "mean or normalised term missing", "FlagGems#5392"},
      {5, "N-1 for N, V-1 for V", "-"},
      {6, "eps omitted, misplaced or guarding the value alone", "keras#23075, Flux.jl#2096, pytorch#2421"},
      {7, "weight not applied, transposed or inverted", "mlx#3700, mlx#2453"},
      {8, "reduction over the wrong axis", "nd4j#2424, tt-metal#40008, burn#181"},
      {9, "cotangent taken for a scalar", "Liger-Kernel#1298, TransformerEngine#2139, warp-transducer#23"},
      {10, "|g|, g^2 or nothing in place of the cotangent", "-"},
      {11, "parameter gradient drops the last block", "attorch#18, pytorch#192016"},
      {12, "grid clamped at 65535", "llama.cpp#25103"},
      {13, "tail that does not fill a vector or tile", "flash-attention#2789, triton#630"},
      {14, "off by one in a reduction", "-"},
      {15, "output not written", "FBGEMM#5754, pytorch#23784"},
      {16, "overwrites instead of accumulating, or the reverse", "llm.c dd8c9f5, torch/nn#318"},
      {17, "stale state of the row before", "-"},
      {18, "cotangent taken for contiguous", "flash-attention#355, pytorch#708, mmcv#737"},
      {19, "input or gradient taken for contiguous", "pytorch#30303, TransformerEngine#2746, apex#1568"},
      {20, "strides of another tensor", "flash-attention 9ee0ff1d, #818"},
      {21, "writes into an input or saved tensor", "Liger-Kernel#254, #272, #1305, llama.cpp#24305"},
      {22, "index overflow", "Liger-Kernel#1248, flash-attention#1500, apex#1845"},
      {23, "parameter gradient or sum accumulated in the storage type", "Liger-Kernel#950, llm.c#476, mxnet#17703"},
      {24, "wrong accumulator type", "Liger-Kernel#1253"},
      {25, "extra rounding on the way", "Liger-Kernel#1329, #1341"},
      {26, "scale rounded before use", "FastVideo#1730, anemoi-core#1027"},
      {27, "intermediate saved in a lower precision", "-"},
      {28, "saturation, overflow or underflow on the way", "flash-attention#2717, tt-metal#35885, #38643"},
      {29, "fast-math, flushing, truncation", "llm.c f534e4b, mirage#599, attention-gym#575"},
      {30, "gradient of another activation", "tt-metal#49498, tensorflow#47724"},
      {31, "one-pass variance E[x^2] - m^2", "pytorch#188375"},
      {32, "mask missing or wrong in backward", "triton#7216, flash-attention a4f148b6"},
      {33, "fully masked row", "pytorch#41508, #109517, cuEquivariance#204"},
      {34, "sentinel index counted or followed", "flash-attention#2755, Liger-Kernel#974"},
      {35, "dropout mask regenerated differently", "pytorch#190717"},
      {36, "ties in a maximum", "pytorch#56734, mxnet#18563, dfdx#111"},
      {37, "gradient at zero", "tinygrad#17404, pytorch#2421"},
      {38, "race", "flash-attention ea38d3d2, TransformerEngine#2921, mlx#3630"},
      {39, "undeclared atomics", "tensorflow#2652, mxnet#11899"},
      {40, "contribution counted twice or lost", "-"},
      {41, "optional argument left out", "pytorch#69208, #193016, Liger-Kernel#1157"},
      {42, "mean over the wrong count of rows", "Liger-Kernel#333"},
      {43, "dtype mismatch under autocast", "Liger-Kernel#318, #502"},
      {44, "halo or padding term where none exists", "apex#1160"},
      {45, "assumption about the shape", "FlagGems#5392, flash-attention#2421, xformers#593"},
      {46, "gradient path dead", "gpytorch#1543"},
      {47, "gradient where the output does not depend on the input", "pytorch#188372"},
      {48, "constant slightly off", "-"}};
  return kClasses;
}

namespace {

/// A specimen of a type that its op is not declared for is an op of these types alone.
void declare_types(Specimen& made, std::vector<Dtype> dtypes) {
  std::vector<Dtype>& storage = made.op.signature.precision.storage;
  const bool all =
      std::ranges::all_of(dtypes, [&](Dtype dtype) { return std::ranges::find(storage, dtype) != storage.end(); });
  if (!all) storage = dtypes;
  made.dtypes = std::move(dtypes);
}

}  // namespace

void add(std::vector<Specimen>& out, const char* op, std::vector<Defect> defects, std::vector<Variant> variants) {
  const auto specimen = [&](const char* name, const char* what, Kernel kernel) {
    Specimen made;
    made.op = *find_op(op);
    made.op.signature.name += std::string(".") + name;
    made.op.signature.summary = what;
    made.op.signature.precision.math = glibc_math();
    made.op.kernel = std::move(kernel);
    made.what = what;
    return made;
  };
  for (Defect& d : defects) {
    Specimen made = specimen(d.name, d.what, std::move(d.kernel));
    made.defect_class = d.defect_class;
    made.regime = d.regime;
    made.due = d.due;
    made.cause = d.cause;
    made.also = d.also == Verdict::rounding ? d.due : d.also;
    declare_types(made, std::move(d.dtypes));
    made.equivalent = d.equivalent;
    out.push_back(std::move(made));
  }
  for (Variant& v : variants) {
    out.push_back(specimen(v.name, v.what, std::move(v.kernel)));
    out.back().form = v.form;
    declare_types(out.back(), std::move(v.dtypes));
  }
}

namespace {

/// What the rules are made with.
std::vector<std::vector<Specimen>> known_specimens() {
  return {elementwise_specimens(),
          activation_specimens(),
          rectifier_specimens(),
          softmax_specimens(),
          norm_specimens(),
          channel_norm_specimens(),
          reduction_specimens(),
          running_sum_specimens(),
          extremum_specimens(),
          linear_specimens(),
          cross_entropy_specimens(),
          embedding_specimens(),
          image_specimens(),
          attention_specimens(),
          further_elementwise_specimens(),
          further_row_specimens(),
          further_sum_specimens(),
          slip_specimens(),
          row_slip_specimens(),
          common_elementwise_specimens(),
          common_rectifier_specimens(),
          common_softmax_specimens(),
          common_norm_specimens(),
          common_channel_specimens(),
          common_sum_specimens(),
          common_product_specimens(),
          common_attention_specimens(),
          common_image_specimens(),
          further_function_specimens(),
          further_branch_specimens(),
          further_loss_specimens(),
          further_norm_specimens(),
          further_channel_specimens(),
          further_axis_specimens(),
          further_product_specimens(),
          further_head_specimens(),
          further_window_specimens()};
}

/// The same, of those that were written after the unseen ones: tests that take every so manyth kernel keep theirs.
std::vector<std::vector<Specimen>> later_specimens() {
  return {daily_elementwise_specimens(), daily_activation_specimens(), daily_softmax_specimens(),
          daily_loss_specimens(),        daily_norm_specimens(),       daily_sum_specimens(),
          shop_attention_specimens(),    shop_product_specimens(),     shop_lookup_specimens(),
          shop_window_specimens(),       shop_channel_specimens(),     shop_line_specimens()};
}

}  // namespace

std::span<const Specimen> specimens() {
  static const std::vector<Specimen> kAll = [] {
    std::vector<Specimen> out;
    for (const std::vector<Specimen>& part : known_specimens()) out.insert(out.end(), part.begin(), part.end());
    for (const auto& part :
         {unseen_elementwise_specimens(), unseen_activation_specimens(), unseen_softmax_specimens(),
          unseen_loss_specimens(), unseen_norm_specimens(), unseen_channel_specimens(), unseen_sum_specimens(),
          unseen_product_specimens(), unseen_attention_specimens(), unseen_image_specimens()})
      for (const Specimen& specimen : part) out.emplace_back(specimen).unseen = true;
    for (const std::vector<Specimen>& part : later_specimens()) out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return kAll;
}

std::span<const Specimen> specimens_in_fp64() {
  static const std::vector<Specimen> kAll = double_specimens();
  return kAll;
}

const OpDef* find_specimen_op(std::string_view name) {
  for (const std::span<const Specimen> list : {specimens(), specimens_in_fp64()})
    for (const Specimen& specimen : list)
      if (specimen.name() == name) return &specimen.op;
  return nullptr;
}

}  // namespace ampcheck::checks::zoo
