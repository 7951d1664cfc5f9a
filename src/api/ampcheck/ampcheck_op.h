/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The C door of ampcheck: a shared library describes its ops as data, and ampcheck judges them.
 *
 *     const ac_plugin *ampcheck_plugin_v1(void) { return &plugin; }      the one exported function
 *     cc -shared -fPIC my_op.c -o libmy_op.so && ampcheck check ./libmy_op.so
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

/** Version of this interface, for ac_plugin::abi. */
#define AMPCHECK_OP_ABI 1u

/** Marks the exported function of a library. */
#if defined(_WIN32)
#define AMPCHECK_EXPORT __declspec(dllexport)
#else
#define AMPCHECK_EXPORT __attribute__((visibility("default")))
#endif

/* ---- Tensors: DLPack's DLTensor, field by field; a const ac_dltensor * is a const DLTensor *. ---- */

/** DLPack's DLDevice. */
typedef struct ac_device {
  int32_t type; /**< AC_CPU or AC_CUDA */
  int32_t id;   /**< Number of the device: 0 on the CPU. */
} ac_device;
/** Values of ac_device::type, as in DLPack. */
enum {
  AC_CPU = 1, /**< Host memory. */
  AC_CUDA = 2 /**< Memory of a CUDA device. */
};

/** DLPack's DLDataType. */
typedef struct ac_dldtype {
  uint8_t code;   /**< AC_DL_FLOAT, ... */
  uint8_t bits;   /**< Of one element. */
  uint16_t lanes; /**< Always 1. */
} ac_dldtype;
/** Codes of DLPack 1.1, for ac_dldtype::code. */
enum {
  AC_DL_INT = 0,            /**< Signed integers. */
  AC_DL_UINT = 1,           /**< Unsigned integers. */
  AC_DL_FLOAT = 2,          /**< IEEE 754 binary formats: fp64, fp32, fp16. */
  AC_DL_BFLOAT = 4,         /**< bf16. */
  AC_DL_FLOAT8_E4M3FN = 10, /**< OCP OFP8 E4M3: no infinity, largest 448. */
  AC_DL_FLOAT8_E5M2 = 12    /**< OCP OFP8 E5M2: with infinity, largest finite 57344. */
};

/** DLPack's DLTensor. */
typedef struct ac_dltensor {
  void* data;           /**< The first element; may be null where there is none. */
  ac_device device;     /**< Where data lies. */
  int32_t ndim;         /**< Number of dimensions. */
  ac_dldtype dtype;     /**< Of its elements. */
  int64_t* shape;       /**< ndim extents, outermost first. */
  int64_t* strides;     /**< ndim strides in elements, never null; 0 along an expanded axis. */
  uint64_t byte_offset; /**< Always 0. */
} ac_dltensor;

/** The dtypes that a tensor can have: storage types of an op, and ac_tensor::dtype. */
enum {
  AC_FP64 = 1, /**< double: 53 bits of significand. */
  AC_FP32,     /**< float: 24 bits. */
  AC_FP16,     /**< IEEE binary16: 11 bits, largest 65504. */
  AC_BF16,     /**< bfloat16: 8 bits, the range of fp32. */
  AC_E4M3FN,   /**< See AC_DL_FLOAT8_E4M3FN: 4 bits. */
  AC_E5M2,     /**< See AC_DL_FLOAT8_E5M2: 3 bits. */
  AC_I32,      /**< int32_t */
  AC_I64,      /**< int64_t */
  AC_U8        /**< uint8_t */
};

/** A tensor with its name. */
typedef struct ac_tensor {
  uint32_t struct_size; /**< sizeof(ac_tensor) of the host. */
  int32_t dtype;        /**< AC_FP32, ... */
  const char* name;     /**< As the op names it: "x", "dy", "dx", "x.tangent". */
  ac_dltensor dl;       /**< Its memory. */
} ac_tensor;

/* ---- What a kernel is called with. ---- */

/** Levels of ac_host::log. */
enum {
  AC_LOG_INFO = 0,   /**< News. */
  AC_LOG_WARNING = 1 /**< Something may be wrong. */
};

/** What a kernel may ask of the host during a call. */
typedef struct ac_host {
  uint32_t struct_size; /**< sizeof(ac_host) of the host. */
  uint32_t abi;         /**< AMPCHECK_OP_ABI of the host. */
  void* context;        /**< First argument of every function below. */
  /** Prints a line on standard error; of very many, the first ones. */
  void (*log)(void* context, int32_t level, const char* message);
  /** What the finding says where the kernel returns an error; the last one counts. */
  void (*set_error)(void* context, const char* message);
  /** Host memory until the call returns, not zeroed; null: none is left. alignment: a power of two, in bytes. */
  void* (*alloc)(void* context, size_t bytes, size_t alignment);
  /** Not 0: the user interrupted the run, or the case is over its --timeout; return soon, with any code: nobody reads
   * the result. Where a kernel does not, its process is killed 2 s later. */
  int32_t (*should_cancel)(void* context);
} ac_host;

/** An attribute of a call. */
typedef struct ac_attribute_value {
  uint32_t struct_size; /**< sizeof(ac_attribute_value) of the host. */
  uint32_t reserved;    /**< 0 */
  const char* name;     /**< As the op names it. */
  double value;         /**< Of this call. */
} ac_attribute_value;

/** One call. Pointers to tensors stand in the order of the op; a null pointer is an absent optional input, its
 * gradient, or a gradient that an input does not have. Forward reads inputs and writes outputs and saved; backward
 * reads inputs, saved and cotangents (one for each output), also outputs that say so, and writes gradients (one for
 * each input); jvp reads inputs, saved and tangents (one for each input) and writes output_tangents. */
typedef struct ac_call {
  uint32_t struct_size;                    /**< sizeof(ac_call) of the host. */
  int32_t storage;                         /**< The storage dtype of the case: AC_FP32, ... */
  ac_device device;                        /**< Where the tensors lie and the kernel is to run. */
  void* stream;                            /**< cudaStream_t; null is the default stream. */
  const ac_host* host;                     /**< Valid during the call. */
  void* user;                              /**< ac_op::user. */
  int32_t input_count;                     /**< Of inputs, gradients, tangents, gradient_cotangents. */
  int32_t output_count;                    /**< Of outputs, cotangents, output_tangents, cotangent_gradients. */
  int32_t saved_count;                     /**< Of saved. */
  int32_t attribute_count;                 /**< Of attributes. */
  const ac_tensor* const* inputs;          /**< In every call. */
  const ac_tensor* const* outputs;         /**< In forward; in backward null, unless one is AC_TO_BACKWARD. */
  const ac_tensor* const* saved;           /**< Written by forward, read by the others. */
  const ac_tensor* const* cotangents;      /**< Null but in backward and double_backward. */
  const ac_tensor* const* gradients;       /**< Null but in backward and double_backward. */
  const ac_attribute_value* attributes;    /**< In the order of the op. */
  const ac_tensor* const* tangents;        /**< Null but in jvp; a null pointer for an input without gradient. */
  const ac_tensor* const* output_tangents; /**< Null but in jvp. */
  /* Fields since the first version: see ac_double_backward. */
  const ac_tensor* const* gradient_cotangents; /**< Null but in double_backward. */
  const ac_tensor* const* cotangent_gradients; /**< Null but in double_backward. */
} ac_call;

/** Returns 0, or an error code of its own after host->set_error: that is a CRASH finding of its case. */
typedef int32_t (*ac_kernel)(const ac_call* call);

/* ---- What an op is. ---- */

/** What an input means, for ac_input::role: all that the generator of data knows of it. */
enum {
  AC_DATA = 0,        /**< Any numbers. */
  AC_WEIGHT,          /**< About 1. */
  AC_BIAS,            /**< About 0. */
  AC_MASK,            /**< 0 or 1, no gradient. */
  AC_INDEX,           /**< Rows of another tensor, no gradient; index_dim bounds them. */
  AC_TARGET,          /**< Classes, no gradient; index_dim bounds them. */
  AC_PROBABILITY,     /**< From 0 to 1. */
  AC_LOG_PROBABILITY, /**< At most 0. */
  AC_ANGLE,           /**< Between -1 and 1. */
  AC_QUANTIZED        /**< Whole numbers from 0 to 255 (AC_TYPE_U8), no gradient; the formula takes zero points off. */
};
/** Which dtype a tensor has in a case. */
enum {
  AC_TYPE_STORAGE = 0, /**< The storage dtype of the case. */
  AC_TYPE_PARAMETER,   /**< That, or fp32 beside 16-bit data. */
  AC_TYPE_FP32,        /**< fp32; fp64 in cases of fp64. */
  AC_TYPE_I64,         /**< int64 in every case. */
  AC_TYPE_U8,          /**< uint8 in every case. */
  /* The same in every case: a GEMM of fp8 numbers that writes bf16, data that a kernel quantizes. */
  AC_TYPE_FP16,   /**< fp16 in every case. */
  AC_TYPE_BF16,   /**< bf16 in every case. */
  AC_TYPE_E4M3FN, /**< e4m3fn in every case. */
  AC_TYPE_E5M2    /**< e5m2 in every case. */
};
/** Domain of an input's values, for ac_input::domain. */
enum {
  AC_ANY = 0,      /**< All finite numbers. */
  AC_POSITIVE,     /**< Above 0. */
  AC_UNIT_INTERVAL /**< Between 0 and 1, ends excluded. */
};

/** Flags of ac_input and ac_output. */
enum {
  AC_OPTIONAL = 1u,    /**< Input: may be absent. */
  AC_NO_GRADIENT = 2u, /**< Input: has no gradient. Output: takes no cotangent, as running statistics do. */
  /** Output, or gradient of an input: row i along row_dim depends on row i of the inputs alone. */
  AC_ROW_INDEPENDENT = 4u,
  AC_ACCUMULATES = 8u, /**< Output, or gradient of an input: is added to what its buffer holds. */
  AC_TO_BACKWARD = 16u /**< Output: backward reads what forward wrote, as it reads a saved tensor. */
};

/** An input of an op. */
typedef struct ac_input {
  uint32_t struct_size;  /**< sizeof(ac_input) */
  uint32_t flags;        /**< AC_OPTIONAL, ... */
  const char* name;      /**< Required; its gradient is "d" and this. */
  const char* dims;      /**< "N D/2": one extent a dimension, of symbols, attributes, + - * / ( ); "": a scalar. */
  int32_t role;          /**< AC_DATA, ... */
  int32_t type;          /**< AC_TYPE_STORAGE, ... */
  int32_t domain;        /**< AC_ANY, ... */
  int32_t gradient_over; /**< k: its gradient overwrites the cotangent of output k (from 1) in backward; 0: of none. */
  const char* index_dim; /**< Indices and targets: the symbol whose extent bounds them. */
} ac_input;

/** An output or a saved tensor, written by forward and read by backward. Its shape follows from the formula, or,
 * without one, from dims. */
typedef struct ac_output {
  uint32_t struct_size; /**< sizeof(ac_output) */
  uint32_t flags;       /**< AC_ROW_INDEPENDENT, AC_ACCUMULATES; output: AC_NO_GRADIENT, AC_TO_BACKWARD */
  const char* name;     /**< Required. */
  int32_t type;         /**< AC_TYPE_STORAGE, ... */
  int32_t reserved;     /**< 0 */
  const char* in_place; /**< Output: the input that it overwrites. */
  const char* dims;     /**< As of inputs; required if the op has no form. */
} ac_output;

/** A number that the kernel takes. */
typedef struct ac_attribute {
  uint32_t struct_size;       /**< sizeof(ac_attribute) */
  int32_t other_count;        /**< Of other_values. */
  const char* name;           /**< Required. */
  double default_value;       /**< Of cases that name none. */
  const double* other_values; /**< Tried besides. */
} ac_attribute;

/** A dimension symbol, its extents in the three sample shapes, and which extents the op takes. */
typedef struct ac_dim {
  uint32_t struct_size; /**< sizeof(ac_dim) */
  int32_t multiple_of;  /**< 0 or 1: any. */
  const char* symbol;   /**< Required. */
  int64_t samples[3];   /**< Required. */
  int64_t least;        /**< 0: also empty. */
  int64_t most;         /**< 0: any; equal to least: a fixed extent. */
} ac_dim;

/** Largest errors of the kernel's functions, in ulps of fp32, over all arguments; 0 takes the default: those of the
 * tables "Known Maximum Errors in Math Functions" of the glibc manual (x86_64), 1/sqrtf(x) for rsqrt. */
typedef struct ac_math {
  uint32_t struct_size; /**< sizeof(ac_math) */
  /** Not 0: the table "Mathematical Functions" of the CUDA C++ Programming Guide, full precision, for whatever is 0
   * below. */
  int32_t cuda;
  double exp;   /**< expf */
  double expm1; /**< expm1f */
  double log;   /**< logf */
  double log1p; /**< log1pf */
  double tanh;  /**< tanhf */
  double erf;   /**< erff */
  double erfc;  /**< erfcf */
  double sqrt;  /**< sqrtf */
  double rsqrt; /**< 1 / sqrt(x) */
} ac_math;

/** Accumulators beside types: the tensor cores of a GPU generation (AC_TENSOR_CORE_H100: H200 too), or of any of them.
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

/** What the kernel promises of its arithmetic; every interval is derived from this. */
typedef struct ac_contract {
  uint32_t struct_size;    /**< sizeof(ac_contract) */
  int32_t storage_count;   /**< Of storage; 0: fp32, fp16, bf16. */
  const int32_t* storage;  /**< Storage types that the op takes: AC_FP32, ... In cases of AC_FP64 the kernel computes
                            * and accumulates in fp64. */
  int32_t compute;         /**< 0 or AC_FP32: what is computed between storage and storage is rounded to it. */
  int32_t accumulate;      /**< 0 or AC_FP32; AC_FP16, AC_BF16: each partial sum is rounded to it; AC_TENSOR_CORE_... */
  int32_t summation_depth; /**< 0: any order; else the largest number of roundings that a term of a sum passes. */
  int32_t flushes_subnormals; /**< Not 0: subnormal inputs and results of fp32 arithmetic may become zero. */
  int32_t atomics;            /**< Not 0: results may differ from call to call, within the interval. */
  int32_t reserved;           /**< 0 */
  const ac_math* math;        /**< Null: glibc's. */
  /* Fields since the first version: where the kernel loses no number on the way whose correctly rounded value is
   * representable. One that becomes infinite, NaN or (at a loss scale) zero all the same is a finding, AC203, with exit
   * code 1. */
  double largest_input;  /**< Of the finite floating inputs up to this magnitude; 0: nothing promised. */
  double smallest_scale; /**< Loss scales from this, a power of two; 0 and 0: nothing promised. */
  double largest_scale;  /**< To this. */
} ac_contract;

/** Flags of ac_form. */
enum {
  AC_FORM_ONE_PASS = 1u /**< Sums by running rescaling (online softmax, Welford). */
};

/** A formula in text; `ampcheck explain formula` shows the language. */
typedef struct ac_form {
  uint32_t struct_size; /**< sizeof(ac_form) */
  uint32_t flags;       /**< AC_FORM_ONE_PASS */
  const char* name;     /**< Null: "form 1", ... */
  const char* formula;  /**< Required. */
} ac_form;

/** A value of an input at which the op has no derivative (0 of relu; 0 and 6 of relu6). An eighth of the drawn data
 * lies at such values, and the gradient that the first form gives there is the convention that the kernel is held to; a
 * further form with another one admits that too. */
typedef struct ac_kink {
  uint32_t struct_size;   /**< sizeof(ac_kink) */
  uint32_t reserved;      /**< 0 */
  const char* input;      /**< Required: an input with a gradient. */
  double at;              /**< The value. */
  const char* convention; /**< In words, for reports: "gradient 0". */
} ac_kink;

/** Flags of ac_extension. */
enum {
  AC_EXTENSION_REQUIRED = 1u /**< A host that does not know it refuses the op. */
};
/** What a later version or another tool knows of: a name with its version, "vendor.what/1", and data that its
 * specification describes. A host ignores an extension that it does not know, unless it is marked as required: then it
 * refuses the op. */
typedef struct ac_extension {
  uint32_t struct_size; /**< sizeof(ac_extension) */
  uint32_t flags;       /**< AC_EXTENSION_REQUIRED */
  const char* name;     /**< Required: printable, ends with / and a version number. */
  const void* data;     /**< As the name says. */
} ac_extension;

/** The extension of this name has an ac_double_backward. */
#define AC_DOUBLE_BACKWARD "ampcheck.double_backward/1"
/** The backward of the backward, which a gradient of a gradient runs. It reads inputs, saved, cotangents ("dy") and
 * gradient_cotangents ("dgrad_x" of the gradient "dx", one for each input, null where that has no gradient), and writes
 * gradients ("dx", by the inputs) and cotangent_gradients ("ddy", by the cotangents, one for each output). It is
 * checked as an op of its own, "<name>_backward", against the formula differentiated twice; optional inputs that have a
 * gradient are there. Wants a form, saved tensors of AC_TYPE_FP32, and no tensor that is added to or overwritten. */
typedef struct ac_double_backward {
  uint32_t struct_size; /**< sizeof(ac_double_backward) */
  uint32_t reserved;    /**< 0 */
  ac_kernel run;        /**< Required. */
} ac_double_backward;

/** The extension of this name has an ac_variants. */
#define AC_VARIANTS "ampcheck.variants/1"
/** Another kernel of the same op: what an autotuner may pick. It is checked as an op of its own, "<op>.<name>", by the
 * same formula and contract, with `ampcheck check --variants` and `gate --variants`. */
typedef struct ac_variant {
  uint32_t struct_size; /**< sizeof(ac_variant) */
  uint32_t reserved;    /**< 0 */
  const char* name;     /**< Required: letters, digits and _, "tile128". */
  ac_kernel forward;    /**< Null: that of the op. */
  ac_kernel backward;   /**< Null: that of the op. */
  ac_kernel jvp;        /**< Null: that of the op. */
  void* user;           /**< Passed on to these kernels. */
} ac_variant;
/** The variants of an op. */
typedef struct ac_variants {
  uint32_t struct_size;       /**< sizeof(ac_variants) */
  int32_t variant_count;      /**< Of variants. */
  const ac_variant* variants; /**< At least one, each with a kernel of its own. */
} ac_variants;

/** The extension of this name has an ac_source. */
#define AC_SOURCE "ampcheck.source/1"
/** Where the op is written: reports for hosts of code put their annotations there. In C++ AMPCHECK_OP fills it in. */
typedef struct ac_source {
  uint32_t struct_size; /**< sizeof(ac_source) */
  int32_t line;         /**< From 1. */
  const char* file;     /**< Required: as the compiler was given it, __FILE__. */
} ac_source;

/** Flags of ac_op. */
enum {
  AC_OP_STRIDED = 1u, /**< The kernel takes any strides; otherwise all tensors are dense and row-major. */
  AC_OP_SERIAL = 2u,  /**< Not re-entrant: one call at a time. */
  /** What is AC_ROW_INDEPENDENT keeps its bits whatever the number of rows, and wherever a row stands. */
  AC_OP_BATCH_INVARIANT = 4u
};
/** Bits of ac_op::devices. */
enum {
  AC_ON_CPU = 1u, /**< Its kernels take tensors in host memory. */
  AC_ON_CUDA = 2u /**< Its kernels take tensors in CUDA device memory. */
};

/** An op. */
typedef struct ac_op {
  uint32_t struct_size;           /**< sizeof(ac_op) */
  uint32_t flags;                 /**< AC_OP_STRIDED, ... */
  const char* name;               /**< Required: letters, digits and _. */
  const char* summary;            /**< One line. */
  uint32_t devices;               /**< AC_ON_CPU, AC_ON_CUDA, or both; 0: AC_ON_CPU. */
  int32_t input_count;            /**< Of inputs. */
  int32_t output_count;           /**< Of outputs. */
  int32_t saved_count;            /**< Of saved. */
  int32_t attribute_count;        /**< Of attributes. */
  int32_t dim_count;              /**< Of dims. */
  int32_t form_count;             /**< Of forms. */
  int32_t reserved;               /**< 0 */
  const ac_input* inputs;         /**< At least one. */
  const ac_output* outputs;       /**< At least one. */
  const ac_output* saved;         /**< What forward keeps for backward. */
  const ac_attribute* attributes; /**< Numbers that the kernel takes. */
  const ac_dim* dims;             /**< Each symbol of the inputs once. */
  /** None: gradients are compared with differences of the op itself, which shows less. The first defines the op; the
   * others are further algebras that the kernel may follow, each proved equal to the first in 100 digits. */
  const ac_form* forms;
  const ac_contract* contract; /**< Null: all defaults. */
  /** The symbols of the leading axes whose elements are the rows that AC_ROW_INDEPENDENT speaks of: "N", "B H". */
  const char* row_dim;
  ac_kernel forward;  /**< Required. */
  ac_kernel backward; /**< Required unless no input has a gradient. */
  void* user;         /**< Passed on to the kernels. */
  /* Fields since the first version. */
  /** Forward mode: output_tangents = J tangents; judged by a form, or without one against backward. */
  ac_kernel jvp;
  int32_t kink_count;             /**< Of kinks. */
  int32_t extension_count;        /**< Of extensions. */
  const ac_kink* kinks;           /**< Where the op has no derivative. */
  const ac_extension* extensions; /**< See ac_extension. */
} ac_op;

/** A library. */
typedef struct ac_plugin {
  uint32_t struct_size; /**< sizeof(ac_plugin) */
  uint32_t abi;         /**< AMPCHECK_OP_ABI */
  const char* name;     /**< Of the library, for messages. */
  const char* error;    /**< Not null: the library cannot describe itself, and why. */
  int32_t op_count;     /**< Of ops. */
  int32_t reserved;     /**< 0 */
  const ac_op* ops;     /**< Its ops. */
} ac_plugin;

/** What the library exports: its description, constant and valid as long as the library is loaded. */
AMPCHECK_EXPORT const ac_plugin* ampcheck_plugin_v1(void);

#ifdef __cplusplus
}
#endif

#endif
