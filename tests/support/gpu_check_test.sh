#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu_check_test.sh ROOT FOLDER CMAKE: every path of tools/gpu_check --run with programs and tools that only pretend
# (tests/support/gpu_fakes.sh), so that no minute on a GPU goes into a slip of the script.
set -euo pipefail
root=$1 folder=$2 cmake=$3
fakes=$root/tests/support/gpu_fakes.sh
rm -rf "$folder"
mkdir -p "$folder/path" "$folder/pack"
for tool in nvidia-smi python3 compute-sanitizer; do
  ln -s "$fakes" "$folder/path/$tool"
done
mkdir -p "$folder/making/gpu_pack"/{bin,lib,cxx,libc,custom_ops,share}
for program in ampcheck ampcheck_gpu_tests gpu_probe; do
  cp "$fakes" "$folder/making/gpu_pack/bin/$program"
done
cp "$fakes" "$folder/making/gpu_pack/libc/ld-linux-x86-64.so.2"
tar -C "$folder/making" -czf "$folder/pack/gpu_pack.tar.gz" gpu_pack

record=$folder/pack/gpu_check.json
output=$folder/output
wrong() { echo "gpu_check_test: $case: $*" >&2; cat "$output" >&2; exit 1; }

# field <name> [<part>]: of the record, or of a part in it; "" if it has no such part. Fails where the record is no JSON.
field() { "$cmake" -DFILE="$record" -DFIELD="$1" ${2:+"-DPART=$2"} -P "$root/tests/support/gpu_json.cmake" 2>&1; }

# run_case <name> <exit code> <fake variables...> -- <arguments...>
run_case() {
  case=$1
  local want=$2 code=0 variables=()
  shift 2
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  rm -f "$record"
  env PATH="$folder/path:/usr/bin:/bin" CUDA_HOME="$folder/no_toolkit" GPU_CHECK_DEVICES="$folder/no_device" "${variables[@]}" "$root/tools/gpu_check" "$@" >"$output" 2>&1 || code=$?
  [ "$code" = "$want" ] || wrong "exit code $code, want $want"
  [ -z "$(compgen -G "$folder/pack/running.*")" ] || wrong "left its folder behind"
}

# $3 and $1 are patterns.
# shellcheck disable=SC2053
want_field() { local got; got=$(field "$2" "$1"); [[ $got == $3 ]] || wrong "$1: $2 is '$got', want '$3'"; }
# shellcheck disable=SC2053
want_value() { local got; got=$(field "$2"); [[ $got == $1 ]] || wrong "$2 is '$got', want '$1'"; }
want_parts() { local got; got=$(field "" NUMBER); [ "$got" = "$1" ] || wrong "$got parts, want $1"; }
want_words() { grep -qF -- "$1" "$output" || wrong "does not say '$1'"; }

archive=("--archive" "$folder/pack/gpu_pack.tar.gz")
mapfile -t all < <(bash -c '. "$1"; printf "%s\n" "${parts[@]%%:*}"' names "$root/tools/gpu/parts.sh")

run_case all_pass 0 -- --run "${archive[@]}"
want_value ampcheck.gpu_check/2 schema
want_value ON passed
want_value ON finished
want_value "Fake GPU*" gpu
want_parts "${#all[@]}"
for part in "${all[@]}"; do want_field "$part" status passed; done
want_field bits evidence '*COMPLETED*'
want_field bits summary '*3 tests ran, 0 skipped'
want_field tensor_cores summary 'fake of tensor-cores'
want_field training summary '*step 20/20*'
want_field torch evidence '*torch*'
want_field triton summary '*1 right ones pass, 1 broken ones are found*'
want_field triton evidence '*broken*'
want_field sanitizer evidence '*racecheck*'
gzip -dc "$folder/pack/gpu_check.check.json.gz" | grep -q '"cases":"fake"' || wrong "did not keep the report of all cases"
want_words "gpu_check: passed on Fake GPU"

run_case one_fails 1 FAKE_FAIL=training -- --run "${archive[@]}"
want_value OFF passed
want_value ON finished
want_field training status failed
want_field training reason 'exit code 1'
want_field training tail '*a fake fails with "quotes", a ? and a tab*'
want_field check status passed
want_words "| a fake fails"
want_words "gpu_check: FAILED on Fake GPU"

run_case one_hangs 1 FAKE_HANG=bits -- --run "${archive[@]}" --limit bits=1 --only bits,tensor_cores
want_field bits status timeout
want_field bits reason 'stopped after 1 s'
want_field bits evidence ''
want_field tensor_cores status passed
want_parts 2

run_case deaf_one_hangs 1 FAKE_HANG=bits FAKE_DEAF=1 -- --run "${archive[@]}" --limit bits=1 --only bits,doctor
want_field bits status timeout
want_field doctor status passed

run_case half_written_evidence 1 FAKE_HALF=products -- --run "${archive[@]}" --only products
want_field products status failed
want_field products evidence ''

run_case time_is_up 1 FAKE_HANG=bits -- --run "${archive[@]}" --seconds 2 --only machine,bits,cublas,check
want_field machine status passed
want_field bits status timeout
want_field cublas status timeout
want_field cublas reason 'no time left of 2 s'
want_field check status timeout
want_value ON finished

run_case not_every_case_in_time 0 FAKE_INCOMPLETE=1 -- --run "${archive[@]}" --only check
want_field check status passed
want_field check summary 'not every case ran*'

run_case no_torch 0 FAKE_NO_TORCH=1 -- --run "${archive[@]}" --only torch,doctor
want_field torch status skipped
want_field torch reason '*no module*'
want_field doctor status passed

run_case no_triton 0 FAKE_NO_TRITON=1 -- --run "${archive[@]}" --only triton,doctor
want_field triton status skipped
want_field triton reason '*triton*'

run_case triton_broken_passes 1 FAKE_BROKEN_IS=0 -- --run "${archive[@]}" --only triton
want_field triton status failed
want_field triton summary '*broken.npz: exit code 0, want 1*'

run_case triton_right_fails 1 FAKE_RIGHT_IS=1 -- --run "${archive[@]}" --only triton
want_field triton status failed
want_field triton summary '*right.npz: exit code 1, want 0*'

run_case torch_fails 1 FAKE_FAIL=torch -- --run "${archive[@]}" --only torch
want_field torch status failed

mv "$folder/path/compute-sanitizer" "$folder/sanitizer"
run_case no_sanitizer 0 -- --run "${archive[@]}" --only sanitizer
want_field sanitizer status skipped
want_field sanitizer reason 'no compute-sanitizer here'
mv "$folder/sanitizer" "$folder/path/compute-sanitizer"

run_case a_race 1 FAKE_RACE=1 -- --run "${archive[@]}" --only sanitizer
want_field sanitizer status failed
want_field sanitizer summary '*racecheck: exit code 9*'
want_field sanitizer evidence '*"racecheck" : 9*'

run_case nothing_ran_under_it 1 FAKE_SKIP_TESTS='no device' -- --run "${archive[@]}" --only sanitizer
want_field sanitizer summary '*memcheck: no test ran under it*'

run_case no_cublas 0 FAKE_SKIP_TESTS='no cuBLAS that can be loaded' -- --run "${archive[@]}" --only cublas
want_field cublas status skipped
want_field cublas reason 'no cuBLAS that can be loaded'
run_case gpu_that_cannot_be_used 1 FAKE_SKIP_TESTS='the driver is too old' -- --run "${archive[@]}" --only bits
want_field bits status failed
want_field bits summary '*skipped although a GPU is there: the driver is too old'
run_case no_test_of_that_name 1 FAKE_NO_TESTS=1 -- --run "${archive[@]}" --only bits
want_field bits summary "*no test matches 'CudaBits*"

run_case older_cxx 0 FAKE_OLD=cxx -- --run "${archive[@]}" --only machine,doctor
want_field machine summary '*PACK/lib:PACK/cxx*'
run_case older_libc 0 FAKE_OLD=libc -- --run "${archive[@]}" --only machine,doctor
want_field machine summary '*PACK/libc/ld-linux-x86-64.so.2 --library-path PACK/lib:PACK/cxx:PACK/libc*'
want_field doctor status passed
run_case does_not_start 2 FAKE_OLD=all -- --run "${archive[@]}"
want_words "does not start here: a fake library is too old"

run_case no_gpu 6 FAKE_NO_GPU=1 -- --run "${archive[@]}"
want_words "no NVIDIA GPU here"
[ ! -e "$record" ] || wrong "wrote a record"
touch "$folder/a_device0"
run_case gpu_without_nvidia_smi 0 FAKE_NO_GPU=1 GPU_CHECK_DEVICES="$folder/a_device" -- --run "${archive[@]}" --only doctor
want_words "a GPU that nvidia-smi does not name"

run_case no_pack 2 -- --run --archive "$folder/nowhere.tar.gz"
want_words "tools/gpu_check --pack"
head -c 300 "$folder/pack/gpu_pack.tar.gz" >"$folder/pack/damaged.tar.gz"
run_case damaged 2 -- --run --archive "$folder/pack/damaged.tar.gz"
want_words "is damaged"

run_case unknown_part 2 -- --run "${archive[@]}" --only bits,bitz
want_words "no part 'bitz', want one of: machine"
run_case unknown_limit 2 -- --run "${archive[@]}" --limit bits=soon
want_words "want whole seconds"
run_case unknown_argument 2 -- --run --fast
want_words "--run got '--fast'"
run_case no_verb 2 --
want_words "tools/gpu_check --run"

run_case own_record 0 -- --run "${archive[@]}" --only doctor "$folder/elsewhere/record.json"
record=$folder/elsewhere/record.json
want_field doctor status passed
record=$folder/pack/gpu_check.json

# A machine that is taken away: what ran stays in the record, which says that it is not finished.
case=taken_away
rm -f "$record"
env PATH="$folder/path:/usr/bin:/bin" FAKE_HANG=cublas "$root/tools/gpu_check" --run "${archive[@]}" --only doctor,cublas >"$output" 2>&1 &
running=$!
for ((i = 0; i < 100; ++i)); do [ ! -s "$record" ] || break; sleep 0.1; done
kill -TERM "$running"
code=0
wait "$running" || code=$?
[ "$code" = 143 ] || wrong "exit code $code, want 143"
want_field doctor status passed
want_value OFF finished
want_value OFF passed

# torch_times.py itself, where there is a python3.
if python=$(PATH=/usr/bin:/bin:/usr/local/bin command -v python3); then
  times() { env PYTHONPATH="$root/tests/support/gpu_fake_torch" PYTHONDONTWRITEBYTECODE=1 "$@" "$python" "$root/tools/gpu/torch_times.py" "$ours" "$record" >"$output" 2>&1; }
  case=torch_times
  ours=$folder/bandwidth.json
  echo '{"tensors":2,"elements":8,"measured":[{"what":"fused Adam fp32","seconds":1}]}' >"$ours"
  times env || wrong "exit code $?"
  want_words "= fused Adam fp32: torch "
  want_words "times as long"
  want_value fake torch
  ours=$folder/nowhere.json
  times env || wrong "exit code $? without times of ours"
  want_words "nothing of ours to compare with"
  code=0
  times env FAKE_TORCH_GPU=0 || code=$?
  [ "$code" = 77 ] || wrong "exit code $code where torch sees no GPU, want 77"
fi

# Packing: of a build whose programs are all `echo`.
build=$folder/build into=$folder/packed
mkdir -p "$build"/{tests,tools/gpu,custom_ops}
for program in ampcheck tests/ampcheck_gpu_tests tools/gpu/gpu_probe; do cp "$(command -v /bin/echo /usr/bin/echo | head -n 1)" "$build/$program"; done
head -c 1000000 /dev/urandom >"$build/custom_ops/rms_norm_cuda.so"
run_case packs 0 AMPCHECK_SHARED="$folder" -- --pack --from "$build" --into "$into"
want_words "gpu_pack.tar.gz: "
tar -tzf "$into/gpu_pack.tar.gz" >"$output"
for file in bin/ampcheck bin/gpu_probe custom_ops/rms_norm_cuda.so share/torch_times.py share/triton_kernels.py share/ampcheck/data/digits.csv libc/libc.so.6; do
  want_words "gpu_pack/$file"
done
[ "$(ls "$into")" = gpu_pack.tar.gz ] || wrong "left more behind than the archive"

head -c 45000000 /dev/urandom >"$build/custom_ops/rms_norm_cuda.so"
run_case too_large 1 AMPCHECK_SHARED="$folder" -- --pack --from "$build" --into "$folder/too_large"
want_words "MiB, want at most 40"
[ -z "$(ls "$folder/too_large")" ] || wrong "left something behind"

rm "$build/tools/gpu/gpu_probe"
run_case not_built 1 AMPCHECK_SHARED="$folder" -- --pack --from "$build" --into "$folder/not_built"
want_words "no tools/gpu/gpu_probe in"
cp /bin/false "$build/tools/gpu/gpu_probe"
run_case does_not_run_unpacked 1 AMPCHECK_SHARED="$folder" -- --pack --from "$build" --into "$folder/not_built"
want_words "'gpu_probe --help' does not run from the unpacked archive"
run_case unknown_pack_argument 2 -- --pack --to "$into"
want_words "--pack got '--to'"

echo "gpu_check_test: as expected"
