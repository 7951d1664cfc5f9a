# SPDX-License-Identifier: Apache-2.0
# ampcheck_embed(<out> <name> <file>...): files as C++ raw strings {name, text}, for `ampcheck new`.
function(ampcheck_embed out)
  set(lines "")
  list(LENGTH ARGN count)
  math(EXPR last "${count} - 1")
  foreach(i RANGE 0 ${last} 2)
    math(EXPR j "${i} + 1")
    list(GET ARGN ${i} name)
    list(GET ARGN ${j} file)
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
    file(READ ${CMAKE_SOURCE_DIR}/${file} text)
    string(APPEND lines "{\"${name}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  file(WRITE ${out}.new "${lines}")
  configure_file(${out}.new ${out} COPYONLY)  # touched only if it changed
endfunction()
