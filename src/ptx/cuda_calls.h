// SPDX-License-Identifier: Apache-2.0
// The calls of the CUDA runtime that device ptx answers, as X(result, name, own name, parameters, arguments). What a
// compiler of CUDA puts into a program calls those with underscores. Types are our own: no header of the toolkit is
// read, and a launch passes numbers and pointers alone. Included by the stand-in library too, which is plain code.
#pragma once

#include <stddef.h>

struct AmpcheckExtent {
  unsigned x, y, z;
};

/// What a program says of its kernels before main().
#define AMPCHECK_CUDA_REGISTRATIONS(X)                                                                        \
  X(void**, __cudaRegisterFatBinary, add_binary, (void* binary), (binary))                                    \
  X(void, __cudaRegisterFatBinaryEnd, end_binary, (void** binary), (binary))                                  \
  X(void, __cudaUnregisterFatBinary, remove_binary, (void** binary), (binary))                                \
  X(void, __cudaRegisterFunction, add_function,                                                               \
    (void** binary, const char* host, char* device, const char* name, int threads, void* thread, void* block, \
     void* block_extent, void* grid_extent, int* warp),                                                       \
    (binary, host, device, name, threads, thread, block, block_extent, grid_extent, warp))

/// Kernels by a handle.
#define AMPCHECK_CUDA_HANDLES(X)                                                                              \
  X(int, __cudaGetKernel, get_kernel, (void** kernel, const void* function), (kernel, function))              \
  X(int, __cudaLaunchKernel, launch_handle,                                                                   \
    (void* kernel, AmpcheckExtent grid, AmpcheckExtent block, void** arguments, size_t shared, void* stream), \
    (kernel, grid, block, arguments, shared, stream))

/// What else our own kernels call.
#define AMPCHECK_CUDA_OWN(X)                                                                                          \
  X(unsigned, __cudaPushCallConfiguration, push_configuration,                                                        \
    (AmpcheckExtent grid, AmpcheckExtent block, size_t shared, void* stream), (grid, block, shared, stream))          \
  X(int, __cudaPopCallConfiguration, pop_configuration,                                                               \
    (AmpcheckExtent * grid, AmpcheckExtent * block, size_t * shared, void* stream), (grid, block, shared, stream))    \
  X(int, cudaLaunchKernel, launch,                                                                                    \
    (const void* function, AmpcheckExtent grid, AmpcheckExtent block, void** arguments, size_t shared, void* stream), \
    (function, grid, block, arguments, shared, stream))                                                               \
  X(int, cudaMallocAsync, allocate_in_order, (void** out, size_t bytes, void* stream), (out, bytes, stream))          \
  X(int, cudaFreeAsync, release_in_order, (void* memory, void* stream), (memory, stream))                             \
  X(int, cudaGetLastError, take_error, (void), ())                                                                    \
  X(const char*, cudaGetErrorName, error_name, (int error), (error))                                                  \
  X(const char*, cudaGetErrorString, error_text, (int error), (error))

/// What only libraries of others call.
#define AMPCHECK_CUDA_FURTHER(X)                                                                                       \
  X(char, __cudaInitModule, init_module, (void** binary), (binary))                                                    \
  X(void, __cudaRegisterVar, add_variable,                                                                             \
    (void** binary, char* host, char* device, const char* name, int external, size_t bytes, int constant, int global), \
    (binary, host, device, name, external, bytes, constant, global))                                                   \
  X(int, cudaLaunchKernelExC, launch_configured, (const void* configuration, const void* function, void** arguments),  \
    (configuration, function, arguments))                                                                              \
  X(int, cudaMalloc, allocate, (void** out, size_t bytes), (out, bytes))                                               \
  X(int, cudaMallocManaged, allocate_managed, (void** out, size_t bytes, unsigned flags), (out, bytes, flags))         \
  X(int, cudaMallocHost, allocate_host, (void** out, size_t bytes), (out, bytes))                                      \
  X(int, cudaHostAlloc, allocate_host_flagged, (void** out, size_t bytes, unsigned flags), (out, bytes, flags))        \
  X(int, cudaFree, release_memory, (void* memory), (memory))                                                           \
  X(int, cudaFreeHost, release_host, (void* memory), (memory))                                                         \
  X(int, cudaMemcpy, copy, (void* to, const void* from, size_t bytes, int kind), (to, from, bytes, kind))              \
  X(int, cudaMemcpyAsync, copy_in_order, (void* to, const void* from, size_t bytes, int kind, void* stream),           \
    (to, from, bytes, kind, stream))                                                                                   \
  X(int, cudaMemcpy2D, copy_rows,                                                                                      \
    (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind),           \
    (to, to_pitch, from, from_pitch, width, height, kind))                                                             \
  X(int, cudaMemcpy2DAsync, copy_rows_in_order,                                                                        \
    (void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int kind,            \
     void* stream),                                                                                                    \
    (to, to_pitch, from, from_pitch, width, height, kind, stream))                                                     \
  X(int, cudaMemset, fill, (void* memory, int value, size_t bytes), (memory, value, bytes))                            \
  X(int, cudaMemsetAsync, fill_in_order, (void* memory, int value, size_t bytes, void* stream),                        \
    (memory, value, bytes, stream))                                                                                    \
  X(int, cudaMemcpyToSymbol, copy_to_symbol,                                                                           \
    (const void* symbol, const void* from, size_t bytes, size_t offset, int kind),                                     \
    (symbol, from, bytes, offset, kind))                                                                               \
  X(int, cudaMemcpyToSymbolAsync, copy_to_symbol_in_order,                                                             \
    (const void* symbol, const void* from, size_t bytes, size_t offset, int kind, void* stream),                       \
    (symbol, from, bytes, offset, kind, stream))                                                                       \
  X(int, cudaMemcpyFromSymbol, copy_from_symbol,                                                                       \
    (void* to, const void* symbol, size_t bytes, size_t offset, int kind), (to, symbol, bytes, offset, kind))          \
  X(int, cudaStreamCreate, create_stream, (void** stream), (stream))                                                   \
  X(int, cudaStreamCreateWithFlags, create_stream_flagged, (void** stream, unsigned flags), (stream, flags))           \
  X(int, cudaStreamCreateWithPriority, create_stream_ranked, (void** stream, unsigned flags, int priority),            \
    (stream, flags, priority))                                                                                         \
  X(int, cudaStreamDestroy, destroy_stream, (void* stream), (stream))                                                  \
  X(int, cudaStreamSynchronize, wait_for_stream, (void* stream), (stream))                                             \
  X(int, cudaStreamQuery, query_stream, (void* stream), (stream))                                                      \
  X(int, cudaStreamWaitEvent, wait_in_stream, (void* stream, void* event, unsigned flags), (stream, event, flags))     \
  X(int, cudaEventCreate, create_event, (void** event), (event))                                                       \
  X(int, cudaEventCreateWithFlags, create_event_flagged, (void** event, unsigned flags), (event, flags))               \
  X(int, cudaEventDestroy, destroy_event, (void* event), (event))                                                      \
  X(int, cudaEventRecord, record_event, (void* event, void* stream), (event, stream))                                  \
  X(int, cudaEventSynchronize, wait_for_event, (void* event), (event))                                                 \
  X(int, cudaEventQuery, query_event, (void* event), (event))                                                          \
  X(int, cudaEventElapsedTime, time_between, (float* milliseconds, void* from, void* to), (milliseconds, from, to))    \
  X(int, cudaDeviceSynchronize, wait_for_device, (void), ())                                                           \
  X(int, cudaPeekAtLastError, peek_error, (void), ())                                                                  \
  X(int, cudaGetDevice, current_device, (int* device), (device))                                                       \
  X(int, cudaSetDevice, choose_device, (int device), (device))                                                         \
  X(int, cudaGetDeviceCount, count_devices, (int* count), (count))                                                     \
  X(int, cudaDeviceGetAttribute, device_attribute, (int* value, int attribute, int device),                            \
    (value, attribute, device))                                                                                        \
  X(int, cudaGetDeviceProperties, device_properties, (void* out, int device), (out, device))                           \
  X(int, cudaGetDeviceProperties_v2, device_properties_of_12, (void* out, int device), (out, device))                  \
  X(int, cudaDeviceReset, reset_device, (void), ())                                                                    \
  X(int, cudaMemGetInfo, memory_left, (size_t * left, size_t * all), (left, all))                                      \
  X(int, cudaRuntimeGetVersion, runtime_version, (int* version), (version))                                            \
  X(int, cudaDriverGetVersion, driver_version, (int* version), (version))                                              \
  X(int, cudaHostGetDevicePointer, host_pointer, (void** device, void* host, unsigned flags), (device, host, flags))   \
  X(int, cudaGetSymbolAddress, symbol_address, (void** out, const void* symbol), (out, symbol))                        \
  X(int, cudaFuncSetAttribute, set_function_attribute, (const void* function, int attribute, int value),               \
    (function, attribute, value))                                                                                      \
  X(int, cudaFuncSetCacheConfig, set_cache, (const void* function, int cache), (function, cache))                      \
  X(int, cudaOccupancyMaxActiveBlocksPerMultiprocessor, active_blocks,                                                 \
    (int* blocks, const void* function, int threads, size_t shared), (blocks, function, threads, shared))              \
  X(int, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, active_blocks_flagged,                                \
    (int* blocks, const void* function, int threads, size_t shared, unsigned flags),                                   \
    (blocks, function, threads, shared, flags))

/// What fails, and says why: a library that has it can be loaded.
#define AMPCHECK_CUDA_REFUSED(X)                                                                                      \
  X(int, cudaLaunchCooperativeKernel, launch_cooperative,                                                             \
    (const void* function, AmpcheckExtent grid, AmpcheckExtent block, void** arguments, size_t shared, void* stream), \
    (function, grid, block, arguments, shared, stream))                                                               \
  X(int, cudaStreamBeginCapture, begin_capture, (void* stream, int mode), (stream, mode))                             \
  X(int, cudaStreamEndCapture, end_capture, (void* stream, void** graph), (stream, graph))                            \
  X(int, cudaStreamIsCapturing, is_capturing, (void* stream, int* status), (stream, status))                          \
  X(int, cudaGraphCreate, create_graph, (void** graph, unsigned flags), (graph, flags))                               \
  X(int, cudaGraphInstantiate, instantiate_graph, (void** out, void* graph, unsigned long long flags),                \
    (out, graph, flags))                                                                                              \
  X(int, cudaGraphInstantiateWithFlags, instantiate_graph_flagged,                                                    \
    (void** out, void* graph, unsigned long long flags), (out, graph, flags))                                         \
  X(int, cudaGraphLaunch, launch_graph, (void* graph, void* stream), (graph, stream))                                 \
  X(int, cudaGraphDestroy, destroy_graph, (void* graph), (graph))                                                     \
  X(int, cudaGraphExecDestroy, destroy_launchable, (void* graph), (graph))

#define AMPCHECK_CUDA_CALLS(X)   \
  AMPCHECK_CUDA_REGISTRATIONS(X) \
  AMPCHECK_CUDA_HANDLES(X)       \
  AMPCHECK_CUDA_OWN(X)           \
  AMPCHECK_CUDA_FURTHER(X)       \
  AMPCHECK_CUDA_REFUSED(X)

/// The functions that answer, by their own names.
struct AmpcheckCudaCalls {
#define AMPCHECK_FIELD(R, NAME, OWN, PARAMETERS, ARGUMENTS) R(*OWN) PARAMETERS;
  AMPCHECK_CUDA_CALLS(AMPCHECK_FIELD)
#undef AMPCHECK_FIELD
};
