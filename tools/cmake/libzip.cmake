# SPDX-License-Identifier: Apache-2.0
# libzip::zip. Debian's own libzip-config.cmake wants programs of other packages, so it is not used.
find_path(AMPCHECK_ZIP_INCLUDE zip.h REQUIRED)
find_library(AMPCHECK_ZIP_LIBRARY zip REQUIRED)
add_library(libzip::zip UNKNOWN IMPORTED)
set_target_properties(libzip::zip PROPERTIES IMPORTED_LOCATION ${AMPCHECK_ZIP_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${AMPCHECK_ZIP_INCLUDE})
