#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest_parts_test.sh <tools/ctest_parts>: every test of a selection runs once and no other one, whatever selects; a failure and
# an empty selection are seen; what does not fit is counted.
set -euo pipefail
parts=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

{
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(sample NONE)' 'enable_testing()'
  for i in $(seq 1 30); do
    name="\"Some.Test+$i\""
    [ $((i % 5)) -ne 0 ] || name="\"All/Some.Test/$i  # GetParam() = (a|b) $i\""
    printf 'add_test(NAME %s COMMAND ${CMAKE_COMMAND} -E echo %s)\n' "$name" "$i"
    [ $((i % 3)) -ne 0 ] || printf 'set_tests_properties(%s PROPERTIES LABELS third)\n' "$name"
  done
  printf '%s\n' 'add_test(NAME broken COMMAND ${CMAKE_COMMAND} -E false)' 'set_tests_properties(broken PROPERTIES LABELS broken)'
} >"$folder/CMakeLists.txt"
cmake -S "$folder" -B "$folder/build" >/dev/null

# expect NAME CODE TESTS LAST-LINE ARGUMENTS...: of the results, how many tests ran, each once.
expect() {
  local name=$1 want="$2, $3 tests, $4" code=0 ran=0 repeated
  shift 4
  rm -f "$folder/out.xml"
  "$parts" --results "$folder/out.xml" --part 4 "$@" >"$folder/log" 2>&1 || code=$?
  if [ -e "$folder/out.xml" ]; then
    ran=$(grep -c '<testcase ' "$folder/out.xml")
    repeated=$(grep -o '<testcase name="[^"]*"' "$folder/out.xml" | sort | uniq -d)
    [ -z "$repeated" ] || { echo "$name: ran twice: $repeated"; failed=1; }
  fi
  local got
  got="$code, $ran tests, $(tail -n 1 "$folder/log")"
  [ "$got" = "$want" ] || { echo "$name: got '$got', want '$want'"; cat "$folder/log"; failed=1; }
}

of="--test-dir $folder/build"
expect 'all but a label' 0 20 'left out 0 of 20' --within 100 -- $of -LE 'third|broken'
expect 'a label' 0 10 'left out 0 of 10' --within 100 -- $of -L third
expect 'a label but some names' 0 9 'left out 0 of 9' --within 100 -- $of -L third -E '^(Some.Test.3)$'
expect 'all but a label and some names' 0 18 'left out 0 of 18' --within 100 -- $of -LE 'third|broken' -E '^(Some.Test.1|Some.Test.2)$'
expect 'a failure' 1 31 'left out 0 of 31' --within 100 -- $of
expect 'nothing selected' 1 0 'ctest_parts: no test is selected' --within 100 -- $of -L nothing
expect 'no time' 3 0 'left out 10 of 10' --within 0 -- $of -L third
exit $failed
