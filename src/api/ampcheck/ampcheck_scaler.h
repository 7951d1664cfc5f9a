/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * A loss scaler or a training loop of your own, as a shared library that ampcheck audits.
 *
 *     const ac_scaler *ampcheck_scaler_v1(void) { return &scaler; }      ampcheck audit scaler ./libmy_scaler.so
 *     const ac_loop *ampcheck_loop_v1(void) { return &loop; }            ampcheck audit step ./libmy_loop.so
 *
 * C11, no dependency. Rules of the interface:
 *   - Every struct begins with its struct_size as the library was compiled, or as the host was. Fields are only ever
 *     appended; a field beyond a library's struct_size reads as null.
 *   - What is exported is constant and lives as long as the library. Strings are UTF-8 and end with NUL.
 *   - Functions are required unless they say otherwise. One that returns int32_t returns 0, or a code of its own: the
 *     call is refused, and last_error says why. No exception and no longjmp may leave a function.
 *   - An object is used by one thread at a time. Several exist at the same time. The same setup makes an object that
 *     does the same.
 */
#ifndef AMPCHECK_SCALER_H
#define AMPCHECK_SCALER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this interface, for ac_scaler::abi and ac_loop::abi. */
#define AMPCHECK_SCALER_ABI 1u

/** Marks the exported function of a library. */
#ifndef AMPCHECK_EXPORT
#if defined(_WIN32)
#define AMPCHECK_EXPORT __declspec(dllexport)
#else
#define AMPCHECK_EXPORT __attribute__((visibility("default")))
#endif
#endif

/* ---- A loss scaler. ---- */

/** How a scaler is made. */
typedef struct ac_scaler_setup {
  uint32_t struct_size;    /**< sizeof(ac_scaler_setup) of the host. */
  int32_t growth_interval; /**< Clean steps until the scale grows. */
  double init_scale;       /**< The first scale. */
  double growth_factor;    /**< Above 1. */
  double backoff_factor;   /**< Between 0 and 1. */
  int32_t enabled;         /**< 0: the scaler is to do nothing at all. */
  int32_t reserved;        /**< 0 */
} ac_scaler_setup;

/** The gradients of an optimizer, fp32, in host memory. */
typedef struct ac_gradients {
  uint32_t struct_size; /**< sizeof(ac_gradients) of the host. */
  int32_t optimizer;    /**< Its number: 0 or 1. */
  int64_t count;        /**< Of values. */
  float* values;        /**< Scaled until they are unscaled; null: there was no backward. */
} ac_gradients;

/** A scaler, with the calls of torch.amp.GradScaler. */
typedef struct ac_scaler {
  uint32_t struct_size; /**< sizeof(ac_scaler) */
  uint32_t abi;         /**< AMPCHECK_SCALER_ABI */
  const char* name;     /**< For messages; may be null. */
  /** A new scaler; null: it cannot be made. */
  void* (*create)(const ac_scaler_setup* setup);
  /** Frees it. */
  void (*destroy)(void* self);
  /** *scaled = loss times the scale. */
  int32_t (*scale)(void* self, double loss, double* scaled);
  /** Divides the gradients by the scale, and remembers whether all are finite. */
  int32_t (*unscale)(void* self, const ac_gradients* gradients);
  /** Unscales if that was not done. *update = 1: the optimizer may make its step; 0: it skips it. */
  int32_t (*step)(void* self, const ac_gradients* gradients, int32_t* update);
  /** Moves the scale. */
  int32_t (*update)(void* self);
  /** The scale in force; 1 of a disabled scaler. */
  double (*get_scale)(void* self);
  /** Writes the state and returns its bytes; writes nothing where room is less. */
  int64_t (*save)(void* self, void* buffer, int64_t room);
  /** Takes a state that save wrote. */
  int32_t (*load)(void* self, const void* state, int64_t bytes);
  /** Why the last call was refused; may be null. */
  const char* (*last_error)(void* self);
  /** Sets the clean steps until the scale grows; may be null: that cannot be set. */
  int32_t (*set_growth_interval)(void* self, int32_t growth_interval);
} ac_scaler;

/** What a library of a scaler exports. */
AMPCHECK_EXPORT const ac_scaler* ampcheck_scaler_v1(void);

/* ---- A training loop. ---- */

/** How a loop is made: weights, data and random numbers come from fixed seeds. */
typedef struct ac_loop_setup {
  uint32_t struct_size;    /**< sizeof(ac_loop_setup) of the host. */
  int32_t growth_interval; /**< Of a loop that moves its scale. */
  double scale;            /**< Of the first step. */
  double clip;             /**< Largest norm of the unscaled gradients; 0: no clipping. */
  int32_t accumulate;      /**< Micro-batches of a step. */
  int32_t reserved;        /**< 0 */
} ac_loop_setup;

/** One optimizer step. */
typedef struct ac_loop_step {
  uint32_t struct_size; /**< sizeof(ac_loop_step) of the host. */
  int32_t batch;        /**< Number of the data: the same number is the same data. */
  int32_t poisoned;     /**< Not 0: poison is put into the gradients, behind backward and before anything else. */
  int32_t micro_batch;  /**< Behind which backward, from 0. */
  int32_t last;         /**< 0: into the first element of the first gradient; 1: into the last of the last. */
  int32_t reserved;     /**< 0 */
  double poison;        /**< Infinity, minus infinity or NaN. */
} ac_loop_step;

/** What a step says of itself. */
typedef struct ac_loop_result {
  uint32_t struct_size; /**< sizeof(ac_loop_result) of the host. */
  int32_t skipped;      /**< 1 or 0; -1, as it is at first: the loop does not know. */
  double loss;          /**< NaN, as it is at first: not said. */
  double scale;         /**< In force in the step's first micro-batch. */
  double last_scale;    /**< In its last; 0, as it is at first: the same. */
} ac_loop_result;

/** Takes the state of a loop, part by part. */
typedef struct ac_loop_sink {
  uint32_t struct_size; /**< sizeof(ac_loop_sink) of the host. */
  uint32_t reserved;    /**< 0 */
  void* context;        /**< First argument of the functions. */
  /** What an update may change: "weights" (required), "masters", "moments", "steps", "ema", "schedule", "random" and
   * any other names; fp32 or integer numbers as doubles, or a few of very many. */
  void (*state)(void* context, const char* part, const double* values, int64_t count);
  /** What forward passes change without an update: running statistics, dropout's generator. */
  void (*forward)(void* context, const char* part, const double* values, int64_t count);
} ac_loop_sink;

/** Flags of ac_loop. */
enum {
  AC_LOOP_SCALER = 1u,     /**< It moves its scale itself. */
  AC_LOOP_CLIP = 2u,       /**< It can clip. */
  AC_LOOP_ACCUMULATE = 4u, /**< It can take several micro-batches for a step. */
  AC_LOOP_RESUME = 8u      /**< It has save and load. */
};

/** A training loop. */
typedef struct ac_loop {
  uint32_t struct_size; /**< sizeof(ac_loop) */
  uint32_t abi;         /**< AMPCHECK_SCALER_ABI */
  const char* name;     /**< For messages; may be null. */
  uint32_t flags;       /**< AC_LOOP_SCALER, ... */
  uint32_t reserved;    /**< 0 */
  /** A new loop; null: it cannot be made. */
  void* (*create)(const ac_loop_setup* setup);
  /** Frees it. */
  void (*destroy)(void* self);
  /** One optimizer step, or a skipped one. */
  int32_t (*step)(void* self, const ac_loop_step* step, ac_loop_result* result);
  /** Hands out the state. */
  int32_t (*report)(void* self, const ac_loop_sink* sink);
  /** Writes a checkpoint and returns its bytes; writes nothing where room is less. With AC_LOOP_RESUME. */
  int64_t (*save)(void* self, void* buffer, int64_t room);
  /** Takes a checkpoint that save wrote. With AC_LOOP_RESUME. */
  int32_t (*load)(void* self, const void* state, int64_t bytes);
  /** Why the last call was refused; may be null. */
  const char* (*last_error)(void* self);
} ac_loop;

/** What a library of a training loop exports. */
AMPCHECK_EXPORT const ac_loop* ampcheck_loop_v1(void);

#ifdef __cplusplus
}
#endif

#endif
