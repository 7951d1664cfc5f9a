# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=ampcheck -DFOLDER=man -P man.cmake: pages for man: FOLDER/man1/ampcheck.1, FOLDER/man1/ampcheck-COMMAND.1
# for each command, and FOLDER/man7/ampcheck-PAGE.7 for each page of the manual. The program says which there are.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/man1 ${FOLDER}/man7)
execute_process(COMMAND ${PROGRAM} explain --json OUTPUT_VARIABLE contents COMMAND_ERROR_IS_FATAL ANY)

# write_page(<page> <file>): `ampcheck explain <page>` for man.
function(write_page page file)
  execute_process(COMMAND ${PROGRAM} explain ${page} --format man OUTPUT_FILE ${FOLDER}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# names_in(<array> <out>): the names that the contents list there.
function(names_in array out)
  set(names "")
  string(JSON count LENGTH ${contents} ${array})
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON name GET ${contents} ${array} ${i} name)
    list(APPEND names ${name})
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()

names_in(topics pages)
list(REMOVE_ITEM pages command-line)
write_page(command-line man1/ampcheck.1)
foreach(page IN LISTS pages)
  write_page(${page} man7/ampcheck-${page}.7)
endforeach()
names_in(commands commands)
foreach(command IN LISTS commands)
  write_page(${command} man1/${command}.1)
endforeach()
