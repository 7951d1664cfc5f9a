# SPDX-License-Identifier: Apache-2.0
# A newcomer adds an op: cmake -DROOT=<source tree> -DFOLDER=<folder> [-DQUICK=ON] -P newcomer_test.cmake
#   copies the tree, runs the code block of CONTRIBUTING.md under "Add an op" line by line, and puts the three files of
#   tests/support/newcomer_op/ where it says that the op is written. All tests of the copy must pass, and `list --wanting`
#   must name the op. With QUICK, of the tests those that look at every op.
cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE ${FOLDER})
file(GLOB parts LIST_DIRECTORIES true RELATIVE ${ROOT} ${ROOT}/*)
list(FILTER parts EXCLUDE REGEX "^(build.*|results)$")
foreach(part IN LISTS parts)
  file(COPY ${ROOT}/${part} DESTINATION ${FOLDER})
endforeach()

file(READ ${ROOT}/CONTRIBUTING.md text)
string(REGEX MATCH "## Add an op\n.*" text "${text}")
string(FIND "${text}" "```sh\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "CONTRIBUTING.md has no code block under 'Add an op'")
endif()
math(EXPR begin "${begin} + 6")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "```" end)
string(SUBSTRING "${text}" 0 ${end} steps)

# What a person does by hand, and the tests of the quick run.
set(op soft_clip)
set(from tests/support/newcomer_op)
set(write_it "# Write the op into the three files.")
string(FIND "${steps}" "op=${op}\n" named)
string(FIND "${steps}" "${write_it}\n" written)
string(FIND "${steps}" "\ntools/test\n" tested)
if(named EQUAL -1 OR written EQUAL -1 OR tested EQUAL -1)
  message(FATAL_ERROR "the steps of CONTRIBUTING.md name no 'op=${op}', '${write_it}' or 'tools/test':\n${steps}")
endif()
string(REPLACE "${write_it}" "cp ${from}/$op.cu kernels/; cp ${from}/$op.h reference/; cp ${from}/$op.cpp checks/ops/" steps "${steps}")
if(QUICK)
  set(tests "*soft_clip*:Formulas.*:RealTensors.Nets*:Zoo.Specimens*:Wanting.*:Cli.List*:AutocastLists.*:Certify*")
  string(REPLACE "\ntools/test\n" "\ntools/build release --target ampcheck_tests\n(cd build && tests/ampcheck_tests --gtest_brief=1 --gtest_filter='${tests}')\n"
                 steps "${steps}")
endif()
file(WRITE ${FOLDER}/newcomer.sh "set -euxo pipefail\n${steps}build/ampcheck list --wanting ${op} | grep -F 'independent values, planted defects, correct variants, a net'\n")
set(ENV{CCACHE_BASEDIR} ${FOLDER})
unset(ENV{AMPCHECK_DATA})
execute_process(COMMAND bash newcomer.sh WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the steps of CONTRIBUTING.md failed with ${code} in ${FOLDER}")
endif()
file(REMOVE_RECURSE ${FOLDER})
