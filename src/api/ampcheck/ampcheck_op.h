/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C door of ampcheck: a shared library describes its ops as data, and ampcheck judges them.
 *
 *   const ac_plugin *ampcheck_plugin_v1(void) { return &plugin; }      the one exported function
 *   cc -shared -fPIC my_op.c -o libmy_op.so && ampcheck check ./libmy_op.so
 *
 * C11, no dependency. Rules of the interface:
 *   - Describing runs nothing: ampcheck_plugin_v1 returns constant data, opens no device and has no effect.
 *   - Every struct begins with its struct_size as the plug-in was compiled. Fields are only ever appended; a field
 * beyond a plug-in's struct_size reads as zero. The elements of an array all have the struct_size of its first.
 *   - Strings are UTF-8, end with NUL, and live as long as the library. Zero or null is the default of every field that
 *     is not marked as required.
 *   - Tensors are borrowed for one call. Strides are in elements and always given. No ownership crosses.
 *   - A function returns 0, or its own error code after host->set_error. No exception and no longjmp may leave it.
 *   - Calls come from several threads at a time, unless AC_OP_SERIAL is set.
 */
#ifndef AMPCHECK_OP_H
#define AMPCHECK_OP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AMPCHECK_OP_ABI 1u

#if defined(_WIN32)
#define AMPCHECK_EXPORT __declspec(dllexport)
#else
#define AMPCHECK_EXPORT __attribute__((visibility("default")))
#endif

/* ---- Tensors: DLPack's DLTensor, field by field; a const ac_dltensor * is a const DLTensor *. ---- */

typedef struct ac_device {
  int32_t type, id;
} ac_device; /* DLPack: 1 cpu, 2 cuda */
enum { AC_CPU = 1, AC_CUDA = 2 };

typedef struct ac_dldtype {
  uint8_t code, bits;
  uint16_t lanes;
} ac_dldtype;
/* Codes of DLPack 1.1. */
enum {
  AC_DL_INT = 0,
  AC_DL_UINT = 1,
  AC_DL_FLOAT = 2,
  AC_DL_BFLOAT = 4,
  AC_DL_FLOAT8_E4M3FN = 10,
  AC_DL_FLOAT8_E5M2 = 12
};

typedef struct ac_dltensor {
  void* data;
  ac_device device;
  int32_t ndim;
  ac_dldtype dtype;
  int64_t* shape;
  int64_t* strides;     /* in elements, never null; 0 along an expanded axis */
  uint64_t byte_offset; /* always 0 */
} ac_dltensor;

/* The dtypes that a tensor can have: storage types of an op, and dtype of ac_tensor. */
enum { AC_FP64 = 1, AC_FP32, AC_FP16, AC_BF16, AC_E4M3FN, AC_E5M2, AC_I32, AC_I64, AC_U8 };

typedef struct ac_tensor {
  uint32_t struct_size;
  int32_t dtype; /* AC_FP32, ... */
  const char* name;
  ac_dltensor dl;
} ac_tensor;

/* ---- What a kernel is called with. ---- */

enum { AC_LOG_INFO = 0, AC_LOG_WARNING = 1 };

typedef struct ac_host {
  uint32_t struct_size;
  uint32_t abi;  /* of the host */
  void* context; /* first argument of every function below */
  void (*log)(void* context, int32_t level, const char* message);
  void (*set_error)(void* context, const char* message); /* what the finding says; the last one counts */
  void* (*alloc)(void* context, size_t bytes,
                 size_t alignment); /* host memory until the call returns; null: none left */
  /* Not 0: the user interrupted the run, or the case is over its --timeout; return soon, with any code: nobody reads
   * the result. Where a kernel does not, its process is killed 2 s later. */
  int32_t (*should_cancel)(void* context);
} ac_host;

/* Attributes of a call, in the order of the op. */
typedef struct ac_attribute_value {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  double value;
} ac_attribute_value;

/* Pointers to tensors in the order of the op; a null pointer is an absent optional input, its gradient, or a gradient
 * that an input does not have. Forward reads inputs and writes outputs and saved; backward reads inputs, saved and
 * cotangents (one for each output) and writes gradients (one for each input); jvp reads inputs, saved and tangents (one
 * for each input) and writes output_tangents. */
typedef struct ac_call {
  uint32_t struct_size;
  int32_t storage; /* the storage dtype of the case */
  ac_device device;
  void* stream; /* cudaStream_t; null is the default stream */
  const ac_host* host;
  void* user; /* of the op */
  int32_t input_count, output_count, saved_count, attribute_count;
  const ac_tensor* const* inputs;
  const ac_tensor* const* outputs; /* null but in forward */
  const ac_tensor* const* saved;
  const ac_tensor* const* cotangents; /* null but in backward */
  const ac_tensor* const* gradients;  /* null but in backward */
  const ac_attribute_value* attributes;
  const ac_tensor* const* tangents;        /* null but in jvp; a null pointer for an input without gradient */
  const ac_tensor* const* output_tangents; /* null but in jvp */
  /* Fields since the first version: see ac_double_backward. */
  const ac_tensor* const* gradient_cotangents; /* null but in double_backward */
  const ac_tensor* const* cotangent_gradients; /* null but in double_backward */
} ac_call;

typedef int32_t (*ac_kernel)(const ac_call* call);

/* ---- What an op is. ---- */

/* What an input means: all that the generator of data knows of it. */
enum {
  AC_DATA = 0,
  AC_WEIGHT,
  AC_BIAS,
  AC_MASK,   /* 0 or 1, no gradient */
  AC_INDEX,  /* rows of another tensor, no gradient; index_dim bounds them */
  AC_TARGET, /* classes, no gradient; index_dim bounds them */
  AC_PROBABILITY,
  AC_LOG_PROBABILITY,
  AC_ANGLE,    /* between -1 and 1 */
  AC_QUANTIZED /* whole numbers from 0 to 255 (AC_TYPE_U8), no gradient; the formula takes zero points off */
};
/* Which dtype a tensor has in a case. */
enum {
  AC_TYPE_STORAGE = 0, /* the storage dtype of the case */
  AC_TYPE_PARAMETER,   /* that, or fp32 beside 16-bit data */
  AC_TYPE_FP32,
  AC_TYPE_I64,
  AC_TYPE_U8,
  /* The same in every case: a GEMM of fp8 numbers that writes bf16, data that a kernel quantizes. */
  AC_TYPE_FP16,
  AC_TYPE_BF16,
  AC_TYPE_E4M3FN,
  AC_TYPE_E5M2
};
enum { AC_ANY = 0, AC_POSITIVE, AC_UNIT_INTERVAL }; /* domain of values; (0, 1) */

enum {
  AC_OPTIONAL = 1u,    /* input: may be absent */
  AC_NO_GRADIENT = 2u, /* input */
  AC_ROW_INDEPENDENT =
      4u,             /* output, or gradient of an input: row i along row_dim depends on row i of the inputs alone */
  AC_ACCUMULATES = 8u /* output, or gradient of an input: is added to what its buffer holds */
};

typedef struct ac_input {
  uint32_t struct_size;
  uint32_t flags;
  const char* name; /* required; its gradient is "d" and this */
  const char* dims; /* "N D": one symbol a dimension; "" or null is a scalar */
  int32_t role, type, domain;
  int32_t reserved;
  const char* index_dim; /* indices and targets: the symbol whose extent bounds them */
} ac_input;

/* Outputs and saved tensors, written by forward and read by backward. Shapes follow from the formula, or, without one,
 * from dims. */
typedef struct ac_output {
  uint32_t struct_size;
  uint32_t flags;
  const char* name; /* required */
  int32_t type;
  int32_t reserved;
  const char* in_place; /* output: the input that it overwrites */
  const char* dims;     /* as of inputs; required if the op has no form */
} ac_output;

typedef struct ac_attribute {
  uint32_t struct_size;
  int32_t other_count;
  const char* name; /* required */
  double default_value;
  const double* other_values; /* tried besides */
} ac_attribute;

/* A dimension symbol, its extents in the three sample shapes, and which extents the op takes. */
typedef struct ac_dim {
  uint32_t struct_size;
  int32_t multiple_of; /* 0 or 1: any */
  const char* symbol;  /* required */
  int64_t samples[3];  /* required */
  int64_t least;       /* 0: also empty */
  int64_t most;        /* 0: any; equal to least: a fixed extent */
} ac_dim;

/* Largest errors of the kernel's functions in ulps of fp32; 0 takes the default: glibc's documented ones, 1/sqrtf(x)
 * for rsqrt. cuda: those of the CUDA C++ Programming Guide, full precision. */
typedef struct ac_math {
  uint32_t struct_size;
  int32_t cuda; /* not 0: CUDA's table for whatever is 0 below */
  double exp, expm1, log, log1p, tanh, erf, erfc, sqrt, rsqrt;
} ac_math;

/* Accumulators beside types: the tensor cores of a GPU generation (AC_TENSOR_CORE_H100: H200 too), or of any of them.
 * Products of matrices (matmul in the formula) may then lose what such cores cut off, in any order and split; all other
 * sums are fp32's. Operands that the formula computes are rounded to the storage type of the case, fp32 ones to tf32. A
 * generation that has no instruction for the type adds up in fp32. With summation_depth 0 alone. */
enum {
  AC_TENSOR_CORE_ANY = 100,
  AC_TENSOR_CORE_V100,
  AC_TENSOR_CORE_TURING,
  AC_TENSOR_CORE_A100,
  AC_TENSOR_CORE_ADA,
  AC_TENSOR_CORE_H100,
  AC_TENSOR_CORE_B200
};

/* What the kernel promises of its arithmetic; every interval is derived from this. */
typedef struct ac_contract {
  uint32_t struct_size;
  int32_t storage_count;   /* 0: fp32, fp16, bf16 */
  const int32_t* storage;  /* AC_FP32, ... */
  int32_t compute;         /* 0 or AC_FP32 */
  int32_t accumulate;      /* 0 or AC_FP32; AC_FP16, AC_BF16; AC_TENSOR_CORE_... */
  int32_t summation_depth; /* 0: any order; else the largest number of roundings that a term of a sum passes */
  int32_t flushes_subnormals;
  int32_t atomics; /* results may differ from call to call, within the interval */
  int32_t reserved;
  const ac_math* math;
  /* Fields since the first version: where the kernel loses no number on the way whose correctly rounded value is
   * representable. One that becomes infinite, NaN or (at a loss scale) zero all the same is a finding, AC203, with exit
   * code 1. */
  double largest_input;                 /* of the finite floating inputs; 0: nothing promised */
  double smallest_scale, largest_scale; /* loss scales, powers of two; 0 and 0: nothing promised */
} ac_contract;

enum { AC_FORM_ONE_PASS = 1u }; /* sums by running rescaling (online softmax, Welford) */

/* A formula in text; `ampcheck explain formula` shows the language. */
typedef struct ac_form {
  uint32_t struct_size;
  uint32_t flags;
  const char* name;    /* null: "form 1", ... */
  const char* formula; /* required */
} ac_form;

/* A value of an input at which the op has no derivative (0 of relu; 0 and 6 of relu6). An eighth of the drawn data lies
 * at such values, and the gradient that the first form gives there is the convention that the kernel is held to; a
 * further form with another one admits that too. */
typedef struct ac_kink {
  uint32_t struct_size;
  uint32_t reserved;
  const char* input; /* required: an input with a gradient */
  double at;
  const char* convention; /* in words, for reports: "gradient 0" */
} ac_kink;

/* What a later version or another tool knows of: a name with its version, "vendor.what/1", and data that its
 * specification describes. A host ignores an extension that it does not know, unless it is marked as required: then it
 * refuses the op. */
enum { AC_EXTENSION_REQUIRED = 1u };
typedef struct ac_extension {
  uint32_t struct_size;
  uint32_t flags;
  const char* name; /* required: printable, ends with / and a version number */
  const void* data;
} ac_extension;

/* The extension of this name has an ac_double_backward: the backward of the backward, which a gradient of a gradient
 * runs. It reads inputs, saved, cotangents ("dy") and gradient_cotangents ("dgrad_x" of the gradient "dx", one for each
 * input, null where that has no gradient), and writes gradients ("dx", by the inputs) and cotangent_gradients ("ddy",
 * by the cotangents, one for each output). It is checked as an op of its own, "<name>_backward", against the formula
 * differentiated twice; optional inputs that have a gradient are there. Wants a form, saved tensors of AC_TYPE_FP32,
 * and no tensor that is added to or overwritten. */
#define AC_DOUBLE_BACKWARD "ampcheck.double_backward/1"
typedef struct ac_double_backward {
  uint32_t struct_size;
  uint32_t reserved;
  ac_kernel run; /* required */
} ac_double_backward;

enum {
  AC_OP_STRIDED = 1u, /* the kernel takes any strides; otherwise all tensors are dense and row-major */
  AC_OP_SERIAL = 2u,  /* not re-entrant: one call at a time */
  AC_OP_BATCH_INVARIANT =
      4u /* what is AC_ROW_INDEPENDENT keeps its bits whatever the number of rows, and wherever a row stands */
};
enum { AC_ON_CPU = 1u, AC_ON_CUDA = 2u };

typedef struct ac_op {
  uint32_t struct_size;
  uint32_t flags;
  const char* name;    /* required: letters, digits and _ */
  const char* summary; /* one line */
  uint32_t devices;    /* 0: AC_ON_CPU */
  int32_t input_count, output_count, saved_count, attribute_count, dim_count, form_count;
  int32_t reserved;
  const ac_input* inputs;   /* at least one */
  const ac_output* outputs; /* at least one */
  const ac_output* saved;
  const ac_attribute* attributes;
  const ac_dim* dims;
  const ac_form* forms; /* None: gradients are compared with differences of the op itself, which shows less. The first
                           defines the op; the others are further algebras that the kernel may follow, each proved equal
                           to the first in 100 digits */
  const ac_contract* contract;
  const char* row_dim; /* the symbols of the leading axes whose elements are the rows that AC_ROW_INDEPENDENT speaks of:
                          "N", "B H" */
  ac_kernel forward;   /* required */
  ac_kernel backward;  /* required unless no input has a gradient */
  void* user;
  /* Fields since the first version. */
  ac_kernel jvp; /* forward mode: output_tangents = J tangents; judged by a form, or without one against backward */
  int32_t kink_count, extension_count;
  const ac_kink* kinks;
  const ac_extension* extensions;
} ac_op;

typedef struct ac_plugin {
  uint32_t struct_size;
  uint32_t abi;      /* AMPCHECK_OP_ABI */
  const char* name;  /* of the library, for messages */
  const char* error; /* not null: the library cannot describe itself, and why */
  int32_t op_count;
  int32_t reserved;
  const ac_op* ops;
} ac_plugin;

/* What the library exports. */
AMPCHECK_EXPORT const ac_plugin* ampcheck_plugin_v1(void);

#ifdef __cplusplus
}
#endif

#endif
