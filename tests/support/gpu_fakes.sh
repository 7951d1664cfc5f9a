#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What tests/support/gpu_check_test.sh puts in place of the pack's programs, the C library's loader, nvidia-smi, python3 and
# compute-sanitizer. $FAKE_FAIL, $FAKE_HANG and $FAKE_HALF name the part that fails, hangs or writes half of its JSON.
name=${0##*/}

# act <part> <JSON file, or ""> <JSON>: as the variables say.
act() {
  echo "= fake of ${4:-$1}"
  if [ "${FAKE_FAIL:-}" = "$1" ]; then
    printf 'a fake fails with "quotes", a \\ and a tab\t.\n'
    exit 1
  fi
  if [ "${FAKE_HANG:-}" = "$1" ]; then
    [ -z "${FAKE_DEAF:-}" ] || trap '' TERM
    for ((i = 0; i < 600; ++i)); do sleep 0.1; done
  fi
  if [ "${FAKE_HALF:-}" = "$1" ]; then
    echo "${3%\}}" >"$2"
    exit 1
  fi
  [ -z "$2" ] || echo "$3" >"$2"
  exit 0
}

start() {  # of a program of the pack: FAKE_OLD says which of the machine's libraries are too old
  case ${FAKE_OLD:-} in
    cxx) [[ ${LD_LIBRARY_PATH:-} == */cxx* ]] && return 0 ;;
    libc) [ -n "${FAKE_LOADED:-}" ] && return 0 ;;
    all) ;;
    *) return 0 ;;
  esac
  echo "a fake library is too old" >&2
  exit 127
}

last_argument=${*: -1}
case $name in
  nvidia-smi)
    [ -z "${FAKE_NO_GPU:-}" ] || { echo "no devices were found"; exit 9; }
    echo 'Fake GPU, 1.2, 9.0' ;;
  ld-linux-*)
    [ "$1" = --library-path ] || exit 9
    shift 2
    FAKE_LOADED=1 exec bash "$@" ;;
  python3)
    case $* in
      *'import torch'*) [ -z "${FAKE_NO_TORCH:-}" ] || { echo "no module named torch" >&2; exit 1; } ;;
      *triton_kernels*)
        [ -z "${FAKE_NO_TRITON:-}" ] || { echo "No module named 'triton'"; exit 77; }
        mkdir -p "$last_argument"
        printf '%s\t%s\ty = x\n' right.npz 0 broken.npz 1 >"$last_argument/list"
        act triton "" "" ;;
      *torch_times*) act torch "$last_argument" '{"torch":"fake"}' ;;
    esac ;;
  compute-sanitizer)
    [ "$1 $2" = "--target-processes all" ] || exit 2
    tool=$4
    shift 6
    "$@" || exit
    [ -z "${FAKE_RACE:-}" ] || [ "$tool" != racecheck ] || { echo "= a race"; exit 9; }
    echo "========= ERROR SUMMARY: 0 errors" ;;
  ampcheck)
    start
    case $1 in
      train) echo "step 20/20  loss 1" ;;
      check) [ -z "${FAKE_INCOMPLETE:-}" ] || exit 5
        [[ $* != *--dump\ broken* ]] || exit "${FAKE_BROKEN_IS:-1}"
        [[ $* != *--dump\ right* ]] || exit "${FAKE_RIGHT_IS:-0}"
        [[ $* == *json:* ]] && act check "${last_argument#json:}" '{"cases":"fake"}'; act plugin "" "" ;;
      *) act "$1" "" "" ;;
    esac ;;
  ampcheck_gpu_tests)
    start
    json="" part=""
    for argument in "$@"; do
      case $argument in
        --gtest_output=json:*) json=${argument#*json:} ;;
        --gtest_filter=CudaLaunch*) part=sanitizer ;;
      esac
    done
    [ -z "$json" ] || part=$(basename "$json" .json)
    if [ -n "${FAKE_NO_TESTS:-}" ]; then
      [ -z "$json" ] || echo '{"tests": 0}' >"$json"
      exit 0
    fi
    if [ -n "${FAKE_SKIP_TESTS:-}" ]; then
      [ -z "$json" ] || printf '{"a": {\n"result": "SKIPPED"\n}}\n' >"$json"
      printf 'fake.cpp:1: Skipped\n%s\n[  SKIPPED ]\n' "$FAKE_SKIP_TESTS"
      exit 0
    fi
    echo "[       OK ] Fake.Test"
    act "$part" "$json" '{"a": [
      {"result": "COMPLETED"},
      {"result": "COMPLETED"},
      {"result": "COMPLETED"}]}' ;;
  gpu_probe)
    start
    act "${1/-/_}" "$last_argument" "{\"$1\":\"fake\"}" "$1" ;;
  *) echo "gpu_fakes: nothing to stand for as '$name'" >&2; exit 2 ;;
esac
