# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The parts of tools/gpu/run, in the order of what only a GPU can answer. Each runs in a shell of its own in the unpacked pack
# and is passed if it exits with 0, skipped with 77 (its last line says why). Lines that begin with "= " are its summary; JSON
# goes to $logs/<part>.json. tools/gpu/run sets logs and pack.
# shellcheck disable=SC2154

# name:seconds. What is left of the time caps the last ones; "check" takes all of it.
# shellcheck disable=SC2034
parts=(machine:15 doctor:20 bits:100 tensor_cores:30 cublas:60 training:60 graphs:30 bandwidth:40 products:40 torch:60 triton:60 sanitizer:110
  plugin:20 check:200)

# find_launch: how programs of the pack start here, into $logs/launch: with this machine's libraries if they will do, else
# with more and more of the pack's. cuBLAS is looked for where toolkits and torch keep it.
find_launch() {
  local cublas attempt
  cublas=$(find_cublas)
  for attempt in own cxx libc; do
    case $attempt in
      own) launch=(env "LD_LIBRARY_PATH=$pack/lib$cublas") ;;
      cxx) launch=(env "LD_LIBRARY_PATH=$pack/lib:$pack/cxx$cublas") ;;
      libc) launch=("$(compgen -G "$pack/libc/ld-linux-*" | head -n 1)" --library-path "$pack/lib:$pack/cxx:$pack/libc$cublas") ;;
    esac
    if "${launch[@]}" "$pack/bin/ampcheck" version >"$logs/start" 2>&1; then
      {
        declare -p launch
        printf 'export NO_COLOR=1 AMPCHECK_SHARED=%q AMPCHECK_DATA=%q logs=%q pack=%q\n' \
          "$pack/share" "$pack/share/ampcheck/data" "$logs" "$pack"
      } >"$logs/launch"
      return 0
    fi
  done
  return 1
}

# ":FOLDER" of a libcublas that the loader does not find by itself; nothing if it does, or if there is none.
find_cublas() {
  local folder
  if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep 'libcublas\.so\.' >/dev/null; then return 0; fi
  for folder in "${CUDA_HOME:-/usr/local/cuda}"/{lib64,targets/x86_64-linux/lib} \
    $(timeout 20 python3 -c 'import glob, sys; print(*[d for p in sys.path if p for d in glob.glob(p + "/nvidia/*/lib")])' 2>/dev/null || true); do
    if compgen -G "$folder/libcublas.so.*" >/dev/null; then
      echo ":$folder"
      return 0
    fi
  done
}

skip() { echo "$*"; exit 77; }

# gtests <part> <filter>: on a GPU a test may skip for want of cuBLAS alone, and the part is skipped then; any other skip is
# a failure, for it means that the GPU could not be used.
gtests() {
  local json=$logs/$1.json code=0 reasons other
  "${launch[@]}" bin/ampcheck_gpu_tests "--gtest_filter=$2" "--gtest_output=json:$json" >"$logs/$1.tests" || code=$?
  cat "$logs/$1.tests"
  reasons=$(grep -a -A1 ': Skipped$' "$logs/$1.tests" | grep -av -e ': Skipped$' -e '^--$' || true)
  other=$(grep -av '^no cuBLAS' <<<"$reasons" | head -n 1 || true)
  echo "= $(grep -c '"result": "COMPLETED"' "$json" || true) tests ran, $(grep -c '"result": "SKIPPED"' "$json" || true) skipped"
  [ "$code" -eq 0 ] || return "$code"
  [ -z "$other" ] || { echo "= skipped although a GPU is there: $other"; return 1; }
  [ -z "$reasons" ] || skip "$(head -n 1 <<<"$reasons")"
  grep -q '"result": "COMPLETED"' "$json" || { echo "= no test matches '$2'"; return 1; }
}

part_machine() {
  nvidia-smi || true
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,ecc.mode.current,mig.mode.current --format=csv || true
  uname -srm
  ldd --version 2>&1 | head -n 1 || true
  echo "= programs start with: ${launch[*]//$pack/PACK}"
}

part_doctor() { "${launch[@]}" bin/ampcheck doctor; }
# Every op, every storage type, forward, backward and beyond: the bits of the CPU.
part_bits() { gtests bits 'CudaBits*:MultiTensor.Cuda*'; }
# The instructions themselves: captures of this generation again, the floor of the alignment exponent, special values.
part_tensor_cores() { "${launch[@]}" bin/gpu_probe tensor-cores share/tensor_core_captures "$logs/tensor_cores.json"; }
part_cublas() { gtests cublas 'CudaCublas*'; }
# Every bit of three steps of three nets; then a run with cuBLAS beside its fp64 run.
part_training() {
  gtests training 'TrainDevice.Cuda*'
  "${launch[@]}" bin/ampcheck train --model transformer --steps 20 --shadow both --device cuda >"$logs/train" ||
    { cat "$logs/train"; return 1; }
  grep -E '^step +20/20 ' "$logs/train" | sed 's/^/= /'
}
part_graphs() { gtests graphs 'CudaGraphs*:CudaStreams*'; }
part_bandwidth() { "${launch[@]}" bin/gpu_probe bandwidth "$logs/bandwidth.json"; }
part_products() { "${launch[@]}" bin/gpu_probe products "$logs/products.json"; }

part_torch() {
  command -v python3 >/dev/null || skip "no python3 here"
  python3 -c 'import torch' 2>"$logs/import" || skip "python3 has no torch: $(tail -n 1 "$logs/import")"
  python3 share/torch_times.py "$logs/bandwidth.json" "$logs/torch.json"
}

# Triton's kernels natively and an operator of torch.ops, right and broken: each dump gets the exit code that it is owed.
part_triton() {
  local code=0 file owed formula got=0 right=0 broken=0 failed=0
  command -v python3 >/dev/null || skip "no python3 here"
  python3 share/triton_kernels.py "$logs/dumps" >"$logs/triton.out" || code=$?
  [ "$code" -ne 77 ] || skip "$(tail -n 1 "$logs/triton.out")"
  cat "$logs/triton.out"
  [ "$code" -eq 0 ] || return "$code"
  while IFS=$'\t' read -r file owed formula; do
    got=0
    "${launch[@]}" bin/ampcheck check --dump "$file" --formula "$formula" >"$logs/triton.check" 2>&1 || got=$?
    if [ "$got" -ne "$owed" ]; then
      echo "= ${file##*/}: exit code $got, want $owed"
      cat "$logs/triton.check"
      failed=1
    elif [ "$owed" -eq 0 ]; then right=$((right + 1)); else broken=$((broken + 1)); fi
  done <"$logs/dumps/list"
  echo "= $right right ones pass, $broken broken ones are found"
  echo "{\"right\":$right,\"broken\":$broken}" >"$logs/triton.json"
  [ "$right" -gt 0 ] && [ "$broken" -gt 0 ] || return 1
  return "$failed"
}

part_sanitizer() {
  local sanitizer tool report failed=0
  sanitizer=$(command -v compute-sanitizer || compgen -G "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" || true)
  [ -n "$sanitizer" ] || skip "no compute-sanitizer here"
  report=""
  for tool in memcheck racecheck synccheck initcheck; do
    if timeout --kill-after=5 $((($1 + 3) / 4)) "$sanitizer" --target-processes all --tool "$tool" --error-exitcode 9 "${launch[@]}" \
      bin/ampcheck_gpu_tests --gtest_filter='CudaLaunch*' >"$logs/sanitizer.$tool" 2>&1; then
      echo "= $tool: $(grep -a 'ERROR SUMMARY\|RACECHECK SUMMARY' "$logs/sanitizer.$tool" | tail -n 1 | sed 's/^=* *//')"
      report+="${report:+,}\"$tool\":0"
    else
      local code=$?
      echo "= $tool: exit code $code"
      tail -n 20 "$logs/sanitizer.$tool"
      report+="${report:+,}\"$tool\":$code"
      failed=1
    fi
    grep -aq '\[       OK \]' "$logs/sanitizer.$tool" || { echo "= $tool: no test ran under it"; failed=1; }
  done
  echo "{\"exit_codes\":{$report}}" >"$logs/sanitizer.json"
  return "$failed"
}

part_plugin() {
  gtests plugin 'CudaPlugin*'
  "${launch[@]}" bin/ampcheck check custom_ops/rms_norm_cuda.so rms_norm_cuda --device cuda
}
# All cases; their report, some 30 MB, is kept beside the record.
part_check() {
  local code=0
  "${launch[@]}" bin/ampcheck check --device cuda --time-budget "$(($1 > 20 ? $1 - 20 : 1))" -o "json:$logs/cases.json" || code=$?
  [ ! -s "$logs/cases.json" ] || gzip -c "$logs/cases.json" >"$logs/check.keep"
  [ "$code" -ne 5 ] || { echo "= not every case ran in the time that was left"; return 0; }
  return "$code"
}
