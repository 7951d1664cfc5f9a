/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul with 8-bit weights through the C door, in groups of the contracted dimension (GPTQ's layout; Frantar et al.
 * 2022): y[n,m] = sum over g, k of x[n,g,k] (codes[g,k,m] - zeros[g,m]) scales[g,m]. The scale is taken once a group,
 * after the sum of products with whole numbers. Gradients for x and the scales; codes and zero points are frozen. Two
 * broken versions beside it. */
#include <ampcheck/ampcheck_op.h>
#include <string.h>

enum { RIGHT, FORGETS_ZEROS, FIRST_SCALES };

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

typedef struct extents {
  int64_t n, g, k, m;
} extents;
static extents extents_of(const ac_tensor* x, const ac_tensor* codes) {
  return (extents){x->dl.shape[0], x->dl.shape[1], x->dl.shape[2], codes->dl.shape[2]};
}

/* code - zero point: a whole number from -255 to 255. */
static float centred(const ac_tensor* codes, const ac_tensor* zeros, extents d, int64_t g, int64_t k, int64_t m) {
  return (float)(((const uint8_t*)codes->dl.data)[(g * d.k + k) * d.m + m] -
                 ((const uint8_t*)zeros->dl.data)[g * d.m + m]);
}

static int32_t forward(const ac_call* call) {
  const ac_tensor *x = call->inputs[0], *codes = call->inputs[1], *zeros = call->inputs[2], *scales = call->inputs[3],
                  *y = call->outputs[0];
  const extents d = extents_of(x, codes);
  for (int64_t n = 0; n < d.n; ++n)
    for (int64_t m = 0; m < d.m; ++m) {
      float total = 0;
      for (int64_t g = 0; g < d.g; ++g) {
        float dot = 0;
        for (int64_t k = 0; k < d.k; ++k) dot += get(x, (n * d.g + g) * d.k + k) * centred(codes, zeros, d, g, k, m);
        total += dot * get(scales, g * d.m + m);
      }
      put(y, n * d.m + m, total);
    }
  return 0;
}

static void backward_x(const ac_call* call, int version) {
  const ac_tensor *codes = call->inputs[1], *zeros = call->inputs[2], *scales = call->inputs[3],
                  *dy = call->cotangents[0], *dx = call->gradients[0];
  const extents d = extents_of(dx, codes);
  for (int64_t n = 0; n < d.n; ++n)
    for (int64_t g = 0; g < d.g; ++g)
      for (int64_t k = 0; k < d.k; ++k) {
        float total = 0;
        for (int64_t m = 0; m < d.m; ++m)
          total += get(dy, n * d.m + m) *
                   (centred(codes, zeros, d, g, k, m) * get(scales, (version == FIRST_SCALES ? 0 : g) * d.m + m));
        put(dx, (n * d.g + g) * d.k + k, total);
      }
}

static void backward_scales(const ac_call* call, int version) {
  const ac_tensor *x = call->inputs[0], *codes = call->inputs[1], *zeros = call->inputs[2], *dy = call->cotangents[0],
                  *dscales = call->gradients[3];
  const extents d = extents_of(x, codes);
  for (int64_t g = 0; g < d.g; ++g)
    for (int64_t m = 0; m < d.m; ++m) {
      float total = 0;
      for (int64_t n = 0; n < d.n; ++n) {
        float dot = 0;
        for (int64_t k = 0; k < d.k; ++k) {
          const float code = (float)((const uint8_t*)codes->dl.data)[(g * d.k + k) * d.m + m];
          dot +=
              get(x, (n * d.g + g) * d.k + k) * (version == FORGETS_ZEROS ? code : centred(codes, zeros, d, g, k, m));
        }
        total += dot * get(dy, n * d.m + m);
      }
      put(dscales, g * d.m + m, total);
    }
}

static int32_t backward(const ac_call* call) {
  const int version = *(const int*)call->user;
  backward_x(call, version);
  backward_scales(call, version);
  return 0;
}

static const ac_dim dims[] = {
    {.struct_size = sizeof(ac_dim), .symbol = "N", .samples = {5, 9, 2}},
    {.struct_size = sizeof(ac_dim), .symbol = "G", .samples = {2, 3, 4}},
    {.struct_size = sizeof(ac_dim), .symbol = "K", .samples = {4, 16, 32}},
    {.struct_size = sizeof(ac_dim), .symbol = "M", .samples = {3, 17, 33}},
};
static const ac_input inputs[] = {
    {.struct_size = sizeof(ac_input), .name = "x", .dims = "N G K", .flags = AC_ROW_INDEPENDENT},
    {.struct_size = sizeof(ac_input), .name = "codes", .dims = "G K M", .role = AC_QUANTIZED, .type = AC_TYPE_U8},
    {.struct_size = sizeof(ac_input), .name = "zeros", .dims = "G M", .role = AC_QUANTIZED, .type = AC_TYPE_U8},
    {.struct_size = sizeof(ac_input), .name = "scales", .dims = "G M", .role = AC_WEIGHT},
};
static const ac_output outputs[] = {{.struct_size = sizeof(ac_output), .name = "y", .flags = AC_ROW_INDEPENDENT}};
static const ac_form forms[] = {
    {.struct_size = sizeof(ac_form),
     .name = "x @ weight",
     .formula = "weight = (codes - reshape(zeros, G, 1, M)) * reshape(scales, G, 1, M)\n"
                "y = reshape(x, N, G*K) @ reshape(weight, G*K, M)"},
    {.struct_size = sizeof(ac_form),
     .name = "scales after each group",
     .formula = "whole = codes - reshape(zeros, G, 1, M); by_group = transpose(x, 1, 0, 2)\n"
                "parts = (by_group @ whole) * reshape(scales, G, 1, M)\n"
                "y = squeeze(sum(parts, 0), 0)"},
};
static const int32_t storage[] = {AC_FP32, AC_BF16};
static const ac_contract contract = {.struct_size = sizeof(ac_contract), .storage = storage, .storage_count = 2};
static int versions[] = {RIGHT, FORGETS_ZEROS, FIRST_SCALES};

#define DEQUANT_MATMUL(NAME, VERSION)                                                                                 \
  {                                                                                                                   \
    .struct_size = sizeof(ac_op), .name = NAME, .summary = "y = x @ ((codes - zeros) scales), 8-bit codes in groups", \
    .inputs = inputs, .input_count = 4, .outputs = outputs, .output_count = 1, .dims = dims, .dim_count = 4,          \
    .forms = forms, .form_count = 2, .contract = &contract, .row_dim = "N", .forward = forward, .backward = backward, \
    .user = &versions[VERSION]                                                                                        \
  }
static const ac_op ops[] = {
    DEQUANT_MATMUL("dequant_matmul", RIGHT),
    DEQUANT_MATMUL("dequant_matmul_forgets_zeros", FORGETS_ZEROS),
    DEQUANT_MATMUL("dequant_matmul_first_scales", FIRST_SCALES),
};
static const ac_plugin plugin = {.struct_size = sizeof(ac_plugin), .abi = AMPCHECK_OP_ABI, .ops = ops, .op_count = 3};

const ac_plugin* ampcheck_plugin_v1(void) { return &plugin; }
