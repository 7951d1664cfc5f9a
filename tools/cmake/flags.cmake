# SPDX-License-Identifier: Apache-2.0
# Contraction off on both sides, fma only where it is written; x86-64-v3 because an fma without it is a library call.
add_library(ampcheck_flags INTERFACE)
target_include_directories(ampcheck_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
# clang counts sign conversions to -Wconversion, gcc does not in C++, and clang does not know `GCC ivdep`, nor that
# the rules select with & and | so that their loops vectorise; gcc 12 warns of std::string's own memcpy (PR105651). An op
# definition names the fields that differ from their defaults, no others.
set(strict -Wall -Wextra -Wconversion -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion;-Wno-unknown-pragmas;-Wno-bitwise-conditional-parentheses;-Wno-bitwise-instead-of-logical>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict> $<$<BOOL:${AMPCHECK_WERROR}>:-Werror>)
set(numeric -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND numeric -march=x86-64-v3)
endif()
target_compile_options(ampcheck_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${strict};${numeric}>)
if(AMPCHECK_HAS_CUDA)
  list(JOIN numeric "," host_numeric)
  target_compile_options(ampcheck_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=${host_numeric};-Wno-deprecated-gpu-targets>)
endif()
find_program(AMPCHECK_CCACHE ccache)
if(AMPCHECK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${AMPCHECK_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${AMPCHECK_CCACHE})
endif()
if(AMPCHECK_SANITIZE)
  # Instrumented code makes gcc see uninitialised values that are none (in boost::optional, for one).
  target_compile_options(ampcheck_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
  set(unchecked $<$<NOT:$<BOOL:${AMPCHECK_FUZZ}>>:-fno-sanitize=null,alignment>)  # what is fuzzed has every check
  target_compile_options(ampcheck_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${AMPCHECK_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;$<$<BOOL:$<TARGET_PROPERTY:AMPCHECK_BUILT_FAST>>:${unchecked}>>)
  target_link_options(ampcheck_flags INTERFACE -fsanitize=${AMPCHECK_SANITIZE})
endif()
if(AMPCHECK_SANITIZE MATCHES address AND NOT AMPCHECK_FUZZ)
  # At fixed addresses a program of 300 MB starts in half the time, and a thousand tests start one each.
  target_compile_options(ampcheck_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-pie>)
  target_link_options(ampcheck_flags INTERFACE -no-pie)
endif()
if(AMPCHECK_FUZZ)
  # Other libraries' parsers are not what is fuzzed: watched, they take four fifths of the time.
  set(others ${CMAKE_SOURCE_DIR}/tests/fuzz/others.txt)
  target_compile_options(ampcheck_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link;-fsanitize-ignorelist=${others};-fsanitize-coverage-ignorelist=${others}>)
endif()

# What users wait for runs in the libraries; commands, reports, tests and what runs once a case or a failure build in half the time with less.
set(AMPCHECK_BUILD_FAST $<$<CONFIG:Release>:-O1> $<$<CONFIG:Debug>:-O0>)
if(AMPCHECK_FUZZ)
  set(AMPCHECK_BUILD_FAST "")  # ten million runs are waited for
elseif(AMPCHECK_SANITIZE)
  list(APPEND AMPCHECK_BUILD_FAST -g0)
endif()
# Under sanitizers most of what these hold is other libraries' JSON, and a third of it checks of its pointers.
function(ampcheck_build_fast target)
  target_compile_options(${target} PRIVATE ${AMPCHECK_BUILD_FAST})
  set_property(TARGET ${target} PROPERTY AMPCHECK_BUILT_FAST ON)
endfunction()
# Such a file says "Runs seldom" in its second line.
function(ampcheck_mark_seldom)
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} head LIMIT_COUNT 2)
    if(head MATCHES "// Runs seldom")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)  # sanitized builds run them often
    endif()
  endforeach()
endfunction()

# ampcheck_library(<folder> LINK ...): one static library per layer with all its rooms, ampcheck::<folder>.
function(ampcheck_library folder)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.cu)
  list(REMOVE_ITEM sources ${AMPCHECK_UNLISTED})
  ampcheck_mark_seldom(${sources})
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${folder}/*.cu)
  if(NOT AMPCHECK_HAS_CUDA AND cuda_sources)
    set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX)
  endif()
  add_library(ampcheck_${folder} STATIC ${sources})
  add_library(ampcheck::${folder} ALIAS ampcheck_${folder})
  target_link_libraries(ampcheck_${folder} PUBLIC $<BUILD_INTERFACE:ampcheck_flags>)
  target_link_libraries(ampcheck_${folder} ${arg_LINK})
  if(AMPCHECK_HAS_CUDA AND cuda_sources)
    target_link_libraries(ampcheck_${folder} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

# The check of the processor must itself run on any: the last -march wins, and nothing else of the file's options differs.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu_check.cpp PROPERTIES COMPILE_OPTIONS "-march=x86-64;-fno-sanitize=all")
endif()
