# SPDX-License-Identifier: Apache-2.0
# libzip::zip. Debian's own libzip-config.cmake wants programs of other packages, so it is not used.
find_path(AMPCHECK_ZIP_INCLUDE zip.h REQUIRED)
find_library(AMPCHECK_ZIP_LIBRARY zip REQUIRED)
execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${AMPCHECK_ZIP_LIBRARY} OUTPUT_VARIABLE facts RESULT_VARIABLE failed)
if(failed OR NOT facts MATCHES "SONAME +([^ \n]+)")
  message(FATAL_ERROR "[libzip] no SONAME in ${AMPCHECK_ZIP_LIBRARY}, want a shared library")
endif()
set(AMPCHECK_ZIP_SONAME ${CMAKE_MATCH_1})
add_library(libzip::zip UNKNOWN IMPORTED)
set_target_properties(libzip::zip PROPERTIES IMPORTED_LOCATION ${AMPCHECK_ZIP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${AMPCHECK_ZIP_INCLUDE})
