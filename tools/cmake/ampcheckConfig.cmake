# SPDX-License-Identifier: Apache-2.0
# find_package(ampcheck): ampcheck::op, the headers of plug-ins, and ampcheck::ampcheck, the program.
include(${CMAKE_CURRENT_LIST_DIR}/ampcheckTargets.cmake)
