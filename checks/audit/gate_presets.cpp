// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Each rule is what the project's public sources state in 2026. Problems of a benchmark may have a rule of their own;
// the one that most of them have stands here.
#include "checks/audit/gate_presets.h"

#include <algorithm>

namespace ampcheck::checks {

namespace {

using Kind = GateRule::Kind;
using Rule = std::optional<GateRule>;

bool in_16_bits(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }
bool in_8_bits(Dtype dtype) { return dtype == Dtype::e4m3fn || dtype == Dtype::e5m2; }

Rule kernelbench(Dtype dtype) {
  if (in_8_bits(dtype)) return {};
  return dtype == Dtype::fp32 ? GateRule{Kind::close, 1e-4, 1e-4} : GateRule{Kind::close, 1e-2, 1e-2};
}
Rule robust_kbench(Dtype dtype) { return dtype == Dtype::fp32 ? Rule({Kind::close, 1e-5, 1e-5}) : std::nullopt; }
Rule sol(Dtype dtype) {
  if (dtype == Dtype::fp32) return {};
  return GateRule{.kind = Kind::matched, .atol = 1e-2, .rtol = 1e-2, .limit = 0.99, .finite = true, .not_zero = true};
}
Rule flashinfer_bench(Dtype) { return GateRule{Kind::close, 1e-2, 1e-2}; }
Rule flashinfer_moe(Dtype dtype) { return in_16_bits(dtype) ? Rule({Kind::matched, 1e-2, 1e-2, 0.95}) : std::nullopt; }
Rule flashinfer_low_bit(Dtype dtype) {
  return dtype == Dtype::fp32 ? std::nullopt : Rule({Kind::matched, 1e-1, 2e-1, 0.85});
}
Rule gpumode(Dtype dtype) {
  if (in_8_bits(dtype)) return GateRule{Kind::close, 1e-3, 2e-2};
  return dtype == Dtype::bf16 ? Rule({Kind::close, 1e-1, 1e-1}) : std::nullopt;
}
Rule ggml(Dtype dtype) { return in_8_bits(dtype) ? std::nullopt : Rule({.kind = Kind::nmse, .limit = 5e-4}); }
Rule torch(Dtype dtype) { return in_8_bits(dtype) ? std::nullopt : Rule(torch_default(dtype)); }
Rule te(Dtype dtype) { return in_8_bits(dtype) ? Rule({Kind::close, 0.0675, 0.125}) : Rule(torch_default(dtype)); }
Rule flash_attention(Dtype dtype) {
  return in_16_bits(dtype) ? Rule({.kind = Kind::factor, .limit = 2}) : std::nullopt;
}
Rule onnx(Dtype dtype) { return dtype == Dtype::fp32 ? Rule({Kind::close, 1e-7, 1e-3}) : std::nullopt; }
Rule cosine(Dtype dtype) { return in_8_bits(dtype) ? std::nullopt : Rule({.kind = Kind::cosine, .limit = 0.999}); }

constexpr GatePreset kPresets[] = {
    {"kernelbench", "KernelBench, random inputs at one shape", kernelbench},
    {"robust-kbench", "robust-kbench, forward and backward in fp32", robust_kbench},
    {"sol", "SOL-ExecBench, with its checks for zeros, NaN and infinity", sol},
    {"flashinfer-bench", "FlashInfer-Bench, most operators", flashinfer_bench},
    {"flashinfer-moe", "FlashInfer-Bench, mixture of experts", flashinfer_moe},
    {"flashinfer-low-bit", "FlashInfer, quantized kernels", flashinfer_low_bit},
    {"gpumode", "GPU MODE, fp8 matmul and latent attention", gpumode},
    {"ggml", "ggml test-backend-ops, mul_mat", ggml},
    {"torch", "torch.testing.assert_close, its defaults", torch},
    {"te", "TransformerEngine: torch's defaults, and its own of fp8", te},
    {"flash-attention", "FlashAttention: against the error of a plain kernel", flash_attention},
    {"onnx", "ONNX backend tests", onnx},
    {"cosine", "a cosine of 0.999, as inference engines compare", cosine},
};

}  // namespace

std::span<const GatePreset> gate_presets() { return kPresets; }

const GatePreset* find_preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &GatePreset::name);
  return found == std::end(kPresets) ? nullptr : found;
}

}  // namespace ampcheck::checks
