# SPDX-License-Identifier: Apache-2.0
# What tools/gpu_check packs, and its two tests; included by tests/CMakeLists.txt. The test gpu_pack packs what is built here
# (seconds: it strips, compresses and starts it again), so tools/test builds and runs it with the rest, and
# `ctest -L gpu-pack` alone. Without CUDA there is nothing to pack.
add_test(NAME gpu_check COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/support/gpu_check_test.sh ${CMAKE_SOURCE_DIR}
                                ${CMAKE_CURRENT_BINARY_DIR}/gpu_check_test ${CMAKE_COMMAND})
set_tests_properties(gpu_check PROPERTIES LABELS quick TIMEOUT 300)

if(AMPCHECK_HAS_CUDA AND NOT AMPCHECK_SANITIZE)
  set_source_files_properties(kernels/cuda_graphs_test.cpp PROPERTIES COMPILE_DEFINITIONS AMPCHECK_HAS_CUDA=1 COMPILE_OPTIONS "${cuda_includes}")
  # Paths are those of the unpacked archive, where it runs.
  file(GLOB gpu_tests CONFIGURE_DEPENDS kernels/cuda_*_test.cpp)
  add_executable(ampcheck_gpu_tests ${gpu_tests} kernels/multi_tensor_test.cpp checks/train/train_device_test.cpp)
  target_link_libraries(ampcheck_gpu_tests PRIVATE ampcheck::tools ampcheck_flags GTest::gtest GTest::gtest_main)
  target_compile_definitions(ampcheck_gpu_tests PRIVATE AMPCHECK_SOURCE_DIR="." AMPCHECK_BINARY_DIR="." AMPCHECK_ROOT="." AMPCHECK_NVCC="")
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
