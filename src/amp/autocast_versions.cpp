// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Facts asked of each release: which operators its dispatcher has under autocast's keys, and from 2.4 on CUDA's classes
// in its header, which are those of the newest. The CPU's classes were executed in 2.4.1, 2.6.0, 2.10.0, 2.13.0 and
// 2.15.0. What else there is of 2.1.2, 2.8.0 and 2.12.0 is taken to be as in the newest.
#include "src/amp/autocast_versions.h"

#include <algorithm>
#include <array>

#include "src/error.h"
#include "src/op_signature.h"
#include "src/suggestion.h"

namespace ampcheck {

namespace {

constexpr std::array<std::string_view, 8> kReleases = {"2.1.2",  "2.4.1",  "2.6.0",  "2.8.0",
                                                       "2.10.0", "2.12.0", "2.13.0", "2.15.0"};

constexpr std::array<CastPolicy, 6> kPolicies = {
    CastPolicy::lower_precision_fp, CastPolicy::fp32,    CastPolicy::fp32_set_opt_dtype,
    CastPolicy::fp32_append_dtype,  CastPolicy::promote, CastPolicy::banned};

/// What the oldest release and those up to `last` have otherwise than the newest: these ops in this class.
struct Change {
  std::string_view last;
  AutocastDevice device = AutocastDevice::cuda;
  CastPolicy policy = CastPolicy::unlisted;
  std::string_view ops;
};
constexpr std::array kChanges = {
    Change{"2.1.2", AutocastDevice::cuda, CastPolicy::unlisted,
           "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
           "_upsample_nearest_exact3d linalg_vecdot upsample_bicubic2d upsample_bilinear2d upsample_linear1d "
           "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d vdot"},
    Change{"2.10.0", AutocastDevice::cuda, CastPolicy::unlisted, "rms_norm"},
    Change{"2.12.0", AutocastDevice::cuda, CastPolicy::fp32_set_opt_dtype,
           "cumprod.dimname cumsum.dimname log_softmax.Dimname prod.dim_Dimname softmax.Dimname sum.dim_DimnameList"},
    Change{"2.12.0", AutocastDevice::cuda, CastPolicy::fp32_append_dtype, "norm.names_ScalarOpt_dim"},
    Change{"2.13.0", AutocastDevice::cuda, CastPolicy::unlisted, "linalg_matrix_sqrth"},
    Change{"2.1.2", AutocastDevice::cpu, CastPolicy::unlisted,
           "_native_multi_head_attention linalg_vecdot scaled_dot_product_attention"},
    Change{"2.4.1", AutocastDevice::cpu, CastPolicy::unlisted, "_addmm_activation"},
    Change{"2.12.0", AutocastDevice::cpu, CastPolicy::fp32, "prod.dim_Dimname"},
    Change{"2.12.0", AutocastDevice::cpu, CastPolicy::promote, "index_copy.dimname"},
    Change{"2.13.0", AutocastDevice::cpu, CastPolicy::fp32, "cholesky qr"},
    Change{"2.13.0", AutocastDevice::cpu, CastPolicy::unlisted, "linalg_matrix_sqrth"},
};

std::size_t place_of(std::string_view release) {
  return static_cast<std::size_t>(std::ranges::find(kReleases, release) - kReleases.begin());
}

std::string_view base_of(std::string_view op) { return op.substr(0, op.find('.')); }

/// "2.6" is the newest 2.6 that is known.
std::string_view release_named(std::string_view word, std::span<const std::string_view> known) {
  for (auto release = known.rbegin(); release != known.rend(); ++release)
    if (*release == word ||
        (release->starts_with(word) && release->size() > word.size() && (*release)[word.size()] == '.'))
      return *release;
  std::string list;
  for (const std::string_view release : known) list += (list.empty() ? "" : ", ") + std::string(release);
  throw Error("[autocast] torch, got '" + std::string(word) + "'" + did_you_mean(word, {known.begin(), known.end()}) +
              ", want " + list);
}

template <class Visit>
void each_word(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    visit(std::string(text.substr(0, space)));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
}

}  // namespace

CastPolicy AutocastList::policy(std::string_view op) const {
  if (const auto found = ops.find(op); found != ops.end()) return found->second;
  if (op.find('.') != std::string_view::npos) return CastPolicy::unlisted;
  bool any = false;
  CastPolicy out = CastPolicy::unlisted;
  for (auto next = ops.lower_bound(op); next != ops.end() && next->first.starts_with(op); ++next) {
    if (base_of(next->first) != op) continue;
    if (any && next->second != out) return CastPolicy::unlisted;
    out = next->second;
    any = true;
  }
  return out;
}

bool AutocastList::lists(std::string_view op) const {
  return std::ranges::any_of(ops, [&](const auto& entry) { return entry.first == op || base_of(entry.first) == op; });
}

std::vector<std::string_view> AutocastList::of(CastPolicy policy) const {
  std::vector<std::string_view> out;
  for (const auto& [op, each] : ops)
    if (each == policy) out.push_back(op);
  return out;
}

std::span<const std::string_view> autocast_releases(AutocastDevice device) {
  const std::span<const std::string_view> all = kReleases;
  return device == AutocastDevice::cpu || device == AutocastDevice::cuda ? all : all.last(1);
}

AutocastList autocast_list(std::string_view release, AutocastDevice device) {
  const std::string_view known = release.empty() ? kReleases.back() : release_named(release, autocast_releases(device));
  AutocastList out;
  out.title = "torch " + std::string(known) + ", " + name(device);
  for (const CastPolicy policy : kPolicies)
    for (const std::string_view op : listed_ops(device, policy)) out.ops.emplace(op, policy);
  for (const Change& change : kChanges) {
    if (change.device != device || place_of(known) > place_of(change.last)) continue;
    each_word(change.ops, [&](const std::string& op) {
      if (change.policy == CastPolicy::unlisted)
        out.ops.erase(op);
      else
        out.ops[op] = change.policy;
    });
  }
  return out;
}

CastPolicy policy_of(const AutocastList& list, AutocastDevice device, const OpSignature& op) {
  if (op.torch_op.empty()) return op.cast;
  const std::string_view inner = inherits_casts_of(device, op.torch_op);
  return list.policy(inner.empty() ? std::string_view(op.torch_op) : inner);
}

const char* rule_of(CastPolicy policy) {
  switch (policy) {
    case CastPolicy::lower_precision_fp: return "every floating argument but fp64 is cast to the region's 16 bits";
    case CastPolicy::fp32: return "every floating argument but fp64 is cast to fp32";
    case CastPolicy::fp32_set_opt_dtype: return "computes in fp32 unless dtype= says otherwise; arguments stay";
    case CastPolicy::fp32_append_dtype: return "gives fp32; arguments stay";
    case CastPolicy::promote: return "the widest of its arguments and the region's 16 bits";
    case CastPolicy::banned: return "refused in a region";
    case CastPolicy::unlisted: return "runs in the dtypes that it is handed";
  }
  return "";
}

std::string_view safe_form(std::string_view op) {
  return base_of(op) == "binary_cross_entropy" ? "binary_cross_entropy_with_logits (BCEWithLogitsLoss)" : "";
}

}  // namespace ampcheck
