# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=ampcheck -DPAGES="ci;limits" -DFOLDER=man -P man.cmake: the manual's pages for man, in FOLDER/man1 and man7.
file(MAKE_DIRECTORY ${FOLDER}/man1 ${FOLDER}/man7)
foreach(page IN LISTS PAGES)
  set(file ${FOLDER}/man7/ampcheck-${page}.7)
  if(page STREQUAL "command-line")
    set(file ${FOLDER}/man1/ampcheck.1)
  endif()
  execute_process(COMMAND ${PROGRAM} explain ${page} --format man OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
