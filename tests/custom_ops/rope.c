/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding through the C door, in the layout of half-split heads: with x = (a, b),
 * y = (a cos1 - b sin1, b cos2 + a sin2). Su et al. 2021, section 3.4.2. Any strides. Two broken versions beside it. */
#include <ampcheck/ampcheck_op.h>
#include <string.h>

enum { RIGHT, ROTATES_FORWARD, STRIDES_OF_X };

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

/* Offset of [s, h, k] with the strides of another tensor of that shape. */
static int64_t at3(const ac_tensor* t, int64_t s, int64_t h, int64_t k) {
  return s * t->dl.strides[0] + h * t->dl.strides[1] + k * t->dl.strides[2];
}
static int64_t at2(const ac_tensor* t, int64_t s, int64_t k) { return s * t->dl.strides[0] + k * t->dl.strides[1]; }

static int32_t forward(const ac_call* call) {
  const ac_tensor *x = call->inputs[0], *cosines = call->inputs[1], *sines = call->inputs[2], *y = call->outputs[0];
  const int64_t half = x->dl.shape[2] / 2;
  for (int64_t s = 0; s < x->dl.shape[0]; ++s)
    for (int64_t h = 0; h < x->dl.shape[1]; ++h)
      for (int64_t k = 0; k < half; ++k) {
        const float a = get(x, at3(x, s, h, k)), b = get(x, at3(x, s, h, k + half));
        put(y, at3(y, s, h, k), a * get(cosines, at2(cosines, s, k)) - b * get(sines, at2(sines, s, k)));
        put(y, at3(y, s, h, k + half),
            b * get(cosines, at2(cosines, s, k + half)) + a * get(sines, at2(sines, s, k + half)));
      }
  return 0;
}

static int32_t backward(const ac_call* call) {
  const int version = *(const int*)call->user;
  const ac_tensor *x = call->inputs[0], *cosines = call->inputs[1], *sines = call->inputs[2];
  const ac_tensor *dy = call->cotangents[0], *dx = call->gradients[0];
  const ac_tensor* of = version == STRIDES_OF_X ? x : dy;
  const float sign = version == ROTATES_FORWARD ? -1.0f : 1.0f; /* the transposed rotation turns back */
  const int64_t half = dx->dl.shape[2] / 2;
  for (int64_t s = 0; s < dx->dl.shape[0]; ++s)
    for (int64_t h = 0; h < dx->dl.shape[1]; ++h)
      for (int64_t k = 0; k < half; ++k) {
        const float ga = get(dy, at3(of, s, h, k)), gb = get(dy, at3(of, s, h, k + half));
        put(dx, at3(dx, s, h, k),
            ga * get(cosines, at2(cosines, s, k)) + sign * gb * get(sines, at2(sines, s, k + half)));
        put(dx, at3(dx, s, h, k + half),
            gb * get(cosines, at2(cosines, s, k + half)) - sign * ga * get(sines, at2(sines, s, k)));
      }
  return 0;
}

static const ac_dim dims[] = {
    {.struct_size = sizeof(ac_dim), .symbol = "S", .samples = {5, 33, 2}},
    {.struct_size = sizeof(ac_dim), .symbol = "H", .samples = {3, 4, 1}},
    {.struct_size = sizeof(ac_dim), .symbol = "D", .samples = {6, 64, 128}, .multiple_of = 2},
};
static const ac_input inputs[] = {
    {.struct_size = sizeof(ac_input), .name = "x", .dims = "S H D", .flags = AC_ROW_INDEPENDENT},
    {.struct_size = sizeof(ac_input), .name = "cos", .dims = "S D", .role = AC_ANGLE, .flags = AC_NO_GRADIENT},
    {.struct_size = sizeof(ac_input), .name = "sin", .dims = "S D", .role = AC_ANGLE, .flags = AC_NO_GRADIENT},
};
static const ac_output outputs[] = {{.struct_size = sizeof(ac_output), .name = "y", .flags = AC_ROW_INDEPENDENT}};
static const ac_form forms[] = {{
    .struct_size = sizeof(ac_form),
    .name = "rotate half",
    .formula = "a = slice(x, -1, 0, D/2); b = slice(x, -1, D/2, D)\n"
               "turned = concat(-b, a)\n"
               "y = x * reshape(cos, S, 1, D) + turned * reshape(sin, S, 1, D)",
}};
static const int32_t storage[] = {AC_FP32, AC_BF16};
static const ac_contract contract = {.struct_size = sizeof(ac_contract), .storage = storage, .storage_count = 2};
static int versions[] = {RIGHT, ROTATES_FORWARD, STRIDES_OF_X};

#define ROPE(NAME, VERSION, FLAGS)                                                                                    \
  {                                                                                                                   \
    .struct_size = sizeof(ac_op), .name = NAME, .summary = "rotary position embedding", .flags = FLAGS,               \
    .inputs = inputs, .input_count = 3, .outputs = outputs, .output_count = 1, .dims = dims, .dim_count = 3,          \
    .forms = forms, .form_count = 1, .contract = &contract, .row_dim = "S", .forward = forward, .backward = backward, \
    .user = &versions[VERSION]                                                                                        \
  }
static const ac_op ops[] = {
    ROPE("rope", RIGHT, AC_OP_STRIDED),
    ROPE("rope_rotates_forward", ROTATES_FORWARD, AC_OP_STRIDED),
    ROPE("rope_strides_of_x", STRIDES_OF_X, AC_OP_STRIDED),
};
static const ac_plugin plugin = {.struct_size = sizeof(ac_plugin), .abi = AMPCHECK_OP_ABI, .ops = ops, .op_count = 3};

const ac_plugin* ampcheck_plugin_v1(void) { return &plugin; }
