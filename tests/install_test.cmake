# SPDX-License-Identifier: Apache-2.0
# A foreign project finds the installed ampcheck, builds an op against its headers, and checks it in its own ctest:
#   cmake -DBUILD=<build folder> -DFOLDER=<empty folder> -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}: exit ${code}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/prefix)
foreach(door c cpp)
  set(op foreign_${door})
  run(${FOLDER}/prefix/bin/ampcheck new op ${op} --door ${door})
  file(REMOVE_RECURSE ${FOLDER}/${op}/ampcheck)  # the installed headers are to be found, not the copy
  run(${CMAKE_COMMAND} -S ${op} -B ${op}/build -DCMAKE_PREFIX_PATH=${FOLDER}/prefix)
  run(${CMAKE_COMMAND} --build ${op}/build)
  run(${CMAKE_CTEST_COMMAND} --test-dir ${op}/build --output-on-failure --no-tests=error)
  if(NOT output MATCHES "100% tests passed.* out of 1")
    message(FATAL_ERROR "${op}: want one test that passes, got\n${output}")
  endif()
  message(STATUS "${op}: found, built, checked")
endforeach()
