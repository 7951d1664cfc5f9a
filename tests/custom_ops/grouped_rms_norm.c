/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm in groups of the last dimension (Mamba-2's, Dao & Gu 2024), through the C door: each of `groups` parts of a
 * row has a norm of its own, the weight is over the whole row. Rows and columns may have any strides, as slices of a
 * fused projection have. Two broken versions beside it. */
#include <ampcheck/ampcheck_op.h>
#include <math.h>
#include <string.h>

enum { RIGHT, WHOLE_ROW_DOT, STRIDES_OF_X };

/* ---- Storage types, by stride. ---- */

static float bf16_to_float(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static uint16_t float_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static float get(const ac_tensor* t, int64_t at) {
  return t->dtype == AC_BF16 ? bf16_to_float(((const uint16_t*)t->dl.data)[at]) : ((const float*)t->dl.data)[at];
}

static void put(const ac_tensor* t, int64_t at, float x) {
  if (t->dtype == AC_BF16)
    ((uint16_t*)t->dl.data)[at] = float_to_bf16(x);
  else
    ((float*)t->dl.data)[at] = x;
}

static int64_t at2(const ac_tensor* t, int64_t row, int64_t column) {
  return row * t->dl.strides[0] + column * t->dl.strides[1];
}
static int64_t at1(const ac_tensor* t, int64_t i) { return i * t->dl.strides[0]; }

/* Four partial sums, as a vectorised loop keeps them. */
typedef struct lanes {
  float sum[4];
} lanes;
static void lanes_add(lanes* l, int64_t i, float x) { l->sum[i % 4] += x; }
static float lanes_total(const lanes* l) { return (l->sum[0] + l->sum[1]) + (l->sum[2] + l->sum[3]); }

/* ---- Kernels. ---- */

static int32_t forward(const ac_call* call) {
  const ac_tensor *x = call->inputs[0], *weight = call->inputs[1], *y = call->outputs[0], *rstd = call->saved[0];
  const float eps = (float)call->attributes[0].value;
  const int64_t groups = (int64_t)call->attributes[1].value, size = x->dl.shape[1] / groups;
  for (int64_t row = 0; row < x->dl.shape[0]; ++row)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * size;
      lanes squares = {{0}};
      for (int64_t i = 0; i < size; ++i) {
        const float value = get(x, at2(x, row, first + i));
        lanes_add(&squares, i, value * value);
      }
      const float scale = 1.0f / sqrtf(lanes_total(&squares) / (float)size + eps);
      ((float*)rstd->dl.data)[at2(rstd, row, g)] = scale;
      for (int64_t i = first; i < first + size; ++i)
        put(y, at2(y, row, i), get(x, at2(x, row, i)) * scale * get(weight, at1(weight, i)));
    }
  return 0;
}

static int32_t backward(const ac_call* call) {
  const int version = *(const int*)call->user;
  const ac_tensor *x = call->inputs[0], *weight = call->inputs[1], *rstd = call->saved[0];
  const ac_tensor *dy = call->cotangents[0], *dx = call->gradients[0], *dweight = call->gradients[1];
  const ac_tensor* of = version == STRIDES_OF_X ? x : dy; /* whose strides dy is read with */
  const int64_t groups = (int64_t)call->attributes[1].value, width = dx->dl.shape[1];
  const int64_t size = version == WHOLE_ROW_DOT ? width : width / groups;
  float* total = call->host->alloc(call->host->context, (size_t)width * sizeof(float), sizeof(float));
  if (total == NULL) {
    call->host->set_error(call->host->context, "no memory for the gradient of weight");
    return 1;
  }
  for (int64_t i = 0; i < width; ++i) total[i] = 0;
  for (int64_t row = 0; row < dx->dl.shape[0]; ++row)
    for (int64_t first = 0; first < width; first += size) {
      lanes dot = {{0}};
      for (int64_t i = first; i < first + size; ++i) {
        const float scale = ((const float*)rstd->dl.data)[at2(rstd, row, i / (width / groups))];
        const float g = get(dy, at2(of, row, i)), normal = get(x, at2(x, row, i)) * scale;
        total[i] += g * normal;
        lanes_add(&dot, i - first, g * get(weight, at1(weight, i)) * normal);
      }
      const float mean = lanes_total(&dot) / (float)size;
      for (int64_t i = first; i < first + size; ++i) {
        const float scale = ((const float*)rstd->dl.data)[at2(rstd, row, i / (width / groups))];
        const float g = get(dy, at2(of, row, i)) * get(weight, at1(weight, i));
        put(dx, at2(dx, row, i), scale * (g - get(x, at2(x, row, i)) * scale * mean));
      }
    }
  for (int64_t i = 0; i < width; ++i) put(dweight, at1(dweight, i), total[i]);
  return 0;
}

/* ---- Description. ---- */

static const ac_dim dims[] = {
    {.struct_size = sizeof(ac_dim), .symbol = "N", .samples = {5, 33, 2}},
    {.struct_size = sizeof(ac_dim), .symbol = "D", .samples = {12, 132, 1028}, .multiple_of = 4, .least = 4},
};
static const ac_input inputs[] = {
    {.struct_size = sizeof(ac_input), .name = "x", .dims = "N D", .flags = AC_ROW_INDEPENDENT},
    {.struct_size = sizeof(ac_input), .name = "weight", .dims = "D", .role = AC_WEIGHT},
};
static const ac_output outputs[] = {{.struct_size = sizeof(ac_output), .name = "y", .flags = AC_ROW_INDEPENDENT}};
static const ac_output saved[] = {{.struct_size = sizeof(ac_output), .name = "rstd", .type = AC_TYPE_FP32}};
static const double other_eps[] = {1e-12, 1e-2}, other_groups[] = {1, 2};
static const ac_attribute attributes[] = {
    {.struct_size = sizeof(ac_attribute),
     .name = "eps",
     .default_value = 1e-5,
     .other_values = other_eps,
     .other_count = 2},
    {.struct_size = sizeof(ac_attribute),
     .name = "groups",
     .default_value = 4,
     .other_values = other_groups,
     .other_count = 2},
};
static const ac_form forms[] = {{
    .struct_size = sizeof(ac_form),
    .name = "norm of each group",
    .formula = "h = reshape(x, N, groups, D/groups)\n"
               "scale = stored(rstd, squeeze(rsqrt(mean(h^2, -1) + eps), -1))\n"
               "inv_rms = reshape(scale, N, groups, 1)\n"
               "n = h * inv_rms  with dh = inv_rms * (dn - n * mean(dn * n, -1))\n"
               "y = reshape(n, N, D) * weight",
}};
static const int32_t storage[] = {AC_FP32, AC_BF16};
static const ac_contract contract = {.struct_size = sizeof(ac_contract), .storage = storage, .storage_count = 2};
static int versions[] = {RIGHT, WHOLE_ROW_DOT, STRIDES_OF_X};

#define GROUPED_RMS_NORM(NAME, VERSION)                                                                                \
  {                                                                                                                    \
    .struct_size = sizeof(ac_op), .name = NAME, .summary = "RMSNorm in groups of the last dimension",                  \
    .flags = AC_OP_STRIDED, .inputs = inputs, .input_count = 2, .outputs = outputs, .output_count = 1, .saved = saved, \
    .saved_count = 1, .dims = dims, .dim_count = 2, .attributes = attributes, .attribute_count = 2, .forms = forms,    \
    .form_count = 1, .contract = &contract, .row_dim = "N", .forward = forward, .backward = backward,                  \
    .user = &versions[VERSION]                                                                                         \
  }
static const ac_op ops[] = {
    GROUPED_RMS_NORM("grouped_rms_norm", RIGHT),
    GROUPED_RMS_NORM("grouped_rms_norm_whole_row_dot", WHOLE_ROW_DOT),
    GROUPED_RMS_NORM("grouped_rms_norm_strides_of_x", STRIDES_OF_X),
};
static const ac_plugin plugin = {.struct_size = sizeof(ac_plugin), .abi = AMPCHECK_OP_ABI, .ops = ops, .op_count = 3};

const ac_plugin* ampcheck_plugin_v1(void) { return &plugin; }
