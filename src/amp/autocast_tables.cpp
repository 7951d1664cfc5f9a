// SPDX-License-Identifier: Apache-2.0
// Facts asked of torch 2.15.0: the dispatcher's registrations and the header's lists (CUDA), registrations and executed
// calls (CPU).
#include "src/amp/autocast_tables.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "src/op_signature.h"

namespace ampcheck {

namespace {

// cudnn_rnn has a wrapper of its own that casts its weights; linalg_matrix_sqrth is registered outside the header's
// lists.
constexpr char kCudaLowerPrecisionFp[] =
    "_convolution _convolution.deprecated _cudnn_rnn _scaled_dot_product_flash_attention _thnn_fused_gru_cell "
    "_thnn_fused_lstm_cell addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc "
    "conv_transpose1d "
    "conv_transpose2d.input conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose einsum "
    "gru_cell linalg_multi_dot linalg_vecdot linear lstm_cell matmul mm mv prelu rnn_relu_cell rnn_tanh_cell "
    "scaled_dot_product_attention";
constexpr char kCudaFp32[] =
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "_upsample_nearest_exact3d acos asin binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss "
    "cosine_similarity dist erfinv exp expm1 frobenius_norm.dim group_norm hinge_embedding_loss huber_loss kl_div "
    "l1_loss "
    "layer_norm linalg_matrix_sqrth log log10 log1p log2 logsumexp margin_ranking_loss mse_loss multi_margin_loss "
    "multilabel_margin_loss native_layer_norm nll_loss nll_loss2d nuclear_norm nuclear_norm.dim pdist poisson_nll_loss "
    "pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor reciprocal renorm rms_norm rsqrt sinh smooth_l1_loss "
    "soft_margin_loss "
    "softplus tan triplet_margin_loss upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d";
constexpr char kCudaPromote[] =
    "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add tensordot vdot";
constexpr char kCudaBanned[] = "binary_cross_entropy";
constexpr char kCudaFp32SetOptDtype[] =
    "cumprod cumsum linalg_matrix_norm linalg_matrix_norm.str_ord linalg_vector_norm log_softmax.int prod prod.dim_int "
    "softmax.int sum sum.dim_IntList";
constexpr char kCudaFp32AppendDtype[] = "norm.Scalar norm.ScalarOpt_dim";
constexpr char kCpuLowerPrecisionFp[] =
    "_addmm_activation _convolution.deprecated _native_multi_head_attention addbmm addmm baddbmm bmm conv1d "
    "conv1d.padding "
    "conv2d conv2d.padding conv3d conv3d.padding conv_tbc conv_transpose1d conv_transpose2d.input "
    "conv_transpose3d.input "
    "linalg_vecdot linear matmul mkldnn_rnn_layer mm prelu scaled_dot_product_attention";
constexpr char kCpuPromote[] = "cat index_copy stack";
constexpr char kCpuFp32[] =
    "_grid_sampler_2d_cpu_fallback _lu_with_info adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d "
    "binary_cross_entropy "
    "binary_cross_entropy_with_logits cdist cholesky_inverse cholesky_solve cosine_embedding_loss cross_entropy_loss "
    "ctc_loss.IntList ctc_loss.Tensor fake_quantize_per_tensor_affine fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft "
    "fft_ifft2 "
    "fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d "
    "fractional_max_pool3d geqrf grid_sampler grid_sampler_2d grid_sampler_3d hinge_embedding_loss huber_loss inverse "
    "kl_div l1_loss linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cond.p_str linalg_eig linalg_eigh "
    "linalg_eigvals "
    "linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq linalg_matrix_rank "
    "linalg_matrix_rank.atol_rtol_float linalg_matrix_rank.atol_rtol_tensor linalg_matrix_rank.tol_tensor "
    "linalg_matrix_sqrth linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve "
    "margin_ranking_loss max_pool3d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss "
    "multilabel_margin_loss_forward nanquantile nanquantile.scalar nll_loss nll_loss2d orgqr ormqr pinverse "
    "poisson_nll_loss polar prod prod.dim_int quantile quantile.scalar reflection_pad1d reflection_pad2d "
    "replication_pad1d "
    "replication_pad2d replication_pad3d smooth_l1_loss soft_margin_loss stft stft.center svd trace triangular_solve "
    "triplet_margin_loss view_as_complex";

// XPU, MTIA and MAIA share CUDA's lists without these.
constexpr char kCudaOnly[] = "_cudnn_rnn cudnn_convolution cudnn_convolution_transpose linalg_matrix_sqrth";

struct List {
  CastPolicy policy;
  std::string_view ops;
};
constexpr std::array<List, 6> kCuda = {{{CastPolicy::lower_precision_fp, kCudaLowerPrecisionFp},
                                        {CastPolicy::fp32, kCudaFp32},
                                        {CastPolicy::fp32_set_opt_dtype, kCudaFp32SetOptDtype},
                                        {CastPolicy::fp32_append_dtype, kCudaFp32AppendDtype},
                                        {CastPolicy::promote, kCudaPromote},
                                        {CastPolicy::banned, kCudaBanned}}};
constexpr std::array<List, 3> kCpu = {{{CastPolicy::lower_precision_fp, kCpuLowerPrecisionFp},
                                       {CastPolicy::fp32, kCpuFp32},
                                       {CastPolicy::promote, kCpuPromote}}};

struct Composite {
  std::string_view op, inner;
};
/// Observed to give another dtype in a region than their arguments have.
constexpr std::array<Composite, 14> kCpuComposites = {{{"chain_matmul", "mm"},
                                                       {"column_stack", "cat"},
                                                       {"concat", "cat"},
                                                       {"concatenate", "cat"},
                                                       {"dstack", "cat"},
                                                       {"hstack", "cat"},
                                                       {"linalg_multi_dot", "mm"},
                                                       {"linalg_pinv", "matmul"},
                                                       {"lstm_cell", "linear"},
                                                       {"multi_head_attention_forward", "linear"},
                                                       {"rnn_relu_cell", "linear"},
                                                       {"rnn_tanh_cell", "linear"},
                                                       {"row_stack", "cat"},
                                                       {"vstack", "cat"}}};
/// By its source: nll_loss of a log_softmax that is asked for the logits' own dtype.
constexpr std::array<Composite, 1> kCudaComposites = {{{"cross_entropy_loss", "nll_loss"}}};

template <class Visit>
void each_word(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    visit(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
}

bool holds(std::string_view text, std::string_view word) {
  bool found = false;
  each_word(text, [&](std::string_view each) { found = found || each == word; });
  return found;
}

std::string_view base_of(std::string_view op) { return op.substr(0, op.find('.')); }

template <class Visit>
void each_listed(AutocastDevice device, const Visit& visit) {
  const auto walk = [&](const auto& lists) {
    for (const List& list : lists)
      each_word(list.ops, [&](std::string_view op) {
        const bool cuda_only = device != AutocastDevice::cuda && device != AutocastDevice::cpu && holds(kCudaOnly, op);
        if (!cuda_only) visit(list.policy, op);
      });
  };
  if (device == AutocastDevice::cpu)
    walk(kCpu);
  else
    walk(kCuda);
}

}  // namespace

const char* name(AutocastDevice device) {
  constexpr std::array<const char*, kAutocastDevices> kNames = {"cpu", "cuda", "xpu", "mtia", "maia"};
  return kNames[static_cast<std::size_t>(device)];
}

const char* name(CastPolicy policy) {
  constexpr std::array<const char*, 7> kNames = {
      "lower_precision_fp", "fp32", "fp32_set_opt_dtype", "fp32_append_dtype", "promote", "banned", "unlisted"};
  return kNames[static_cast<std::size_t>(policy)];
}

Dtype default_autocast_dtype(AutocastDevice device) {
  return device == AutocastDevice::cpu || device == AutocastDevice::maia ? Dtype::bf16 : Dtype::fp16;
}

CastPolicy cast_policy(AutocastDevice device, std::string_view op) {
  static const std::array<std::unordered_map<std::string_view, CastPolicy>, kAutocastDevices> kPolicies = [] {
    std::array<std::unordered_map<std::string_view, CastPolicy>, kAutocastDevices> all;
    for (int i = 0; i < kAutocastDevices; ++i) {
      std::unordered_map<std::string_view, CastPolicy> exact, bases;
      each_listed(static_cast<AutocastDevice>(i), [&](CastPolicy policy, std::string_view listed) {
        exact[listed] = policy;
        const auto [base, fresh] = bases.try_emplace(base_of(listed), policy);
        if (base->second != policy) base->second = CastPolicy::unlisted;  // its overloads disagree
      });
      exact.merge(bases);  // which keeps what an operator says itself
      all[static_cast<std::size_t>(i)] = std::move(exact);
    }
    return all;
  }();
  const auto& policies = kPolicies[static_cast<std::size_t>(device)];
  const auto found = policies.find(op);
  return found == policies.end() ? CastPolicy::unlisted : found->second;
}

CastPolicy cast_policy(AutocastDevice device, const OpSignature& op) {
  if (op.torch_op.empty()) return op.cast;
  const std::string_view inner = inherits_casts_of(device, op.torch_op);
  return cast_policy(device, inner.empty() ? std::string_view(op.torch_op) : inner);
}

std::vector<std::string_view> listed_ops(AutocastDevice device, CastPolicy policy) {
  std::vector<std::string_view> ops;
  each_listed(device, [&](CastPolicy each, std::string_view op) {
    if (each == policy) ops.push_back(op);
  });
  std::sort(ops.begin(), ops.end());
  return ops;
}

std::string_view inherits_casts_of(AutocastDevice device, std::string_view op) {
  if (cast_policy(device, op) != CastPolicy::unlisted) return "";
  const auto inner = [op](const auto& composites) {
    const auto found =
        std::find_if(composites.begin(), composites.end(), [op](const Composite& c) { return c.op == op; });
    return found == composites.end() ? std::string_view() : found->inner;
  };
  return device == AutocastDevice::cpu ? inner(kCpuComposites) : inner(kCudaComposites);
}

}  // namespace ampcheck
