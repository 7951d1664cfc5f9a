# SPDX-License-Identifier: Apache-2.0
# What tools/gpu_check packs, and its two tests; included by tests/CMakeLists.txt, which gets `gpu_objects` for ampcheck_tests.
# The test gpu_pack packs what is built here (seconds: it strips, compresses and starts it again), so tools/test builds and
# runs it with the rest, and `ctest -L gpu-pack` alone. Without CUDA there is nothing to pack.
add_test(NAME gpu_check COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/support/gpu_check_test.sh ${CMAKE_SOURCE_DIR}
                                ${CMAKE_CURRENT_BINARY_DIR}/gpu_check_test ${CMAKE_COMMAND})
set_tests_properties(gpu_check PROPERTIES LABELS quick TIMEOUT 300)

# Tests that a GPU runs too are compiled once for both programs.
file(GLOB gpu_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda_*_test.cpp)
list(APPEND gpu_tests ${CMAKE_CURRENT_SOURCE_DIR}/kernels/multi_tensor_test.cpp ${CMAKE_CURRENT_SOURCE_DIR}/checks/train/train_device_test.cpp)
add_library(ampcheck_gpu_test_objects OBJECT ${gpu_tests})
target_link_libraries(ampcheck_gpu_test_objects PRIVATE ampcheck::checks ampcheck_flags GTest::gtest)
ampcheck_build_fast(ampcheck_gpu_test_objects)
if(AMPCHECK_HAS_CUDA)
  set_source_files_properties(kernels/cuda_graphs_test.cpp PROPERTIES COMPILE_DEFINITIONS AMPCHECK_HAS_CUDA=1 COMPILE_OPTIONS "${cuda_includes}")
endif()
list(REMOVE_ITEM quick ${gpu_tests})
set(gpu_objects $<TARGET_OBJECTS:ampcheck_gpu_test_objects>)

# Runs CUDA programs of others on device ptx, for tools/gpu/foreign_kernels.py; built where it is asked for.
add_executable(run_program EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/gpu/run_program.cpp)
target_link_libraries(run_program PRIVATE ampcheck::src ampcheck_flags)
set_target_properties(run_program PROPERTIES ENABLE_EXPORTS ON RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools/gpu)

add_test(NAME foreign_kernels COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/support/foreign_kernels_test.sh ${CMAKE_SOURCE_DIR}
                                      ${CMAKE_CURRENT_BINARY_DIR}/foreign_kernels_test $<TARGET_FILE:ampcheck>)
set_tests_properties(foreign_kernels PROPERTIES LABELS quick TIMEOUT 300)

# Where the packed tests find files: beside them, in the unpacked archive.
function(ampcheck_packed_paths out)
  set(CMAKE_SOURCE_DIR .)
  set(CMAKE_BINARY_DIR .)
  set(AMPCHECK_TEST_ROOT .)
  set(AMPCHECK_TEST_NVCC "")
  configure_file(${CMAKE_CURRENT_SOURCE_DIR}/support/paths.cpp.in ${out} @ONLY)
endfunction()

if(AMPCHECK_HAS_CUDA AND NOT AMPCHECK_SANITIZE)
  ampcheck_packed_paths(${CMAKE_CURRENT_BINARY_DIR}/gpu_paths.cpp)
  add_executable(ampcheck_gpu_tests ${gpu_objects} ${CMAKE_CURRENT_BINARY_DIR}/gpu_paths.cpp)
  target_link_libraries(ampcheck_gpu_tests PRIVATE ampcheck::checks ampcheck_flags GTest::gtest GTest::gtest_main)
  ampcheck_build_fast(ampcheck_gpu_tests)

  set(gpu_folder ${CMAKE_SOURCE_DIR}/tools/gpu)
  add_executable(gpu_probe ${gpu_folder}/probe.cpp ${gpu_folder}/tensor_cores.cpp ${gpu_folder}/bandwidth.cpp ${gpu_folder}/products.cpp
    ${gpu_folder}/instructions.cu)
  set_source_files_properties(${gpu_folder}/bandwidth.cpp ${gpu_folder}/products.cpp PROPERTIES COMPILE_OPTIONS "${cuda_includes}")
  target_link_libraries(gpu_probe PRIVATE ampcheck::kernels ampcheck_flags nlohmann_json::nlohmann_json CUDA::cudart_static)
  set_target_properties(gpu_probe PROPERTIES CUDA_ARCHITECTURES 90a RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools/gpu)  # 90a: wgmma

  add_custom_target(gpu_pack_programs DEPENDS ampcheck ampcheck_gpu_tests gpu_probe custom_op_rms_norm_cuda)
  add_test(NAME gpu_pack COMMAND ${CMAKE_SOURCE_DIR}/tools/gpu_check --pack --from ${CMAKE_BINARY_DIR} --into ${CMAKE_CURRENT_BINARY_DIR}/gpu_pack)
  set_tests_properties(gpu_pack PROPERTIES LABELS gpu-pack TIMEOUT 300)
endif()
