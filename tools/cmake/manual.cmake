# SPDX-License-Identifier: Apache-2.0
# The manual, written once (tools/manual/*.md): `ampcheck explain PAGE`, pages for man, and the site of tools/docs.
set(AMPCHECK_MANUAL  # in the order in which they are read
  tutorial own-op gpu-kernels formulas dumps python agents training diagnose loss-scale training-step autocast stacks tensor-cores ci gate mutants findings how-it-judges command-line files json limits architecture trace torch)

file(GLOB manual_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tools/manual ${CMAKE_SOURCE_DIR}/tools/manual/*.md)
set(manual_embedded "")
foreach(page IN LISTS AMPCHECK_MANUAL)
  list(APPEND manual_embedded ${page} tools/manual/${page}.md)
  list(REMOVE_ITEM manual_files ${page}.md)
endforeach()
if(manual_files)
  message(FATAL_ERROR "tools/manual: ${manual_files} is not in AMPCHECK_MANUAL (tools/cmake/manual.cmake)")
endif()
ampcheck_embed(${CMAKE_BINARY_DIR}/generated/ampcheck_manual.inc ${manual_embedded})

# The page for agents, as a skill that they load: the same text behind a head of two lines.
file(READ ${CMAKE_SOURCE_DIR}/tools/manual/agents.md agents_page)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/skills/ampcheck/SKILL.md @ONLY CONTENT
"---
name: ampcheck
description: Judge a numerical kernel or function (torch, Triton, NumPy, C++) against its reference without a tolerance. Use it after writing or changing a kernel, or when a low-precision result differs from the reference and it must be decided whether that is a bug or rounding.
---

@agents_page@")
install(FILES ${CMAKE_BINARY_DIR}/generated/skills/ampcheck/SKILL.md DESTINATION share/ampcheck/skills/ampcheck)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/manual/agents.md)

# Pages for man are made by the program itself. Where only the program was built, there are none to install.
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man/made
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:ampcheck> -DFOLDER=${CMAKE_BINARY_DIR}/man
          -P ${CMAKE_SOURCE_DIR}/tools/manual/man.cmake
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/man/made
  DEPENDS ampcheck ${CMAKE_SOURCE_DIR}/tools/manual/man.cmake VERBATIM)
add_custom_target(ampcheck_man ALL DEPENDS ${CMAKE_BINARY_DIR}/man/made)
