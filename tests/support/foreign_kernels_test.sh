#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# foreign_kernels_test.sh SOURCE FOLDER AMPCHECK: tools/gpu/foreign_kernels.py counts what device ptx decodes. A compiler
# that gives one text stands for nvcc.
set -euo pipefail
source=$1 folder=$2 program=$3
rm -rf "$folder"
mkdir -p "$folder/kernels"

cat >"$folder/nvcc" <<'EOF'
#!/usr/bin/env bash
# nvcc ... SOURCE -o FILE
while [ $# -gt 0 ]; do
  case $1 in
    *.cu) text=$1 ;;
    -o) shift; out=$1 ;;
  esac
  shift
done
grep -q 'no CUDA' "$text" && { echo "$text(1): error: that is none" >&2; exit 1; }
cp "$text" "$out"
EOF
chmod +x "$folder/nvcc"

kernel() { printf '.visible .entry %s(.param .u64 x)\n{\n.reg .b64 %%d<2>;\nld.param.u64 %%d0, [x];\n%s\nret;\n}\n' "$1" "$2"; }
head=$'.version 8.0\n.target sm_80\n.address_size 64\n'
{ printf '%s' "$head"; kernel one 'st.global.u64 [%d0], %d0;'; kernel two 'wgmma.fence.sync.aligned;'; } >"$folder/kernels/both.cu"
echo "no CUDA" >"$folder/kernels/wrong.cu"
printf '%s' "$head" >"$folder/kernels/none.cu"

said=$(NVCC="$folder/nvcc" python3 "$source/tools/gpu/foreign_kernels.py" "$folder/kernels" --program "$program" --json "$folder/out.json")
expect() { grep -qF -- "$1" <<<"$said" || { echo "want '$1' in:"; echo "$said"; exit 1; }; }
expect "2 of 3 files compile, 1 of 2 kernels decode"
expect "wgmma"
expect "wrong.cu: "
python3 -c "import json, sys; assert len(json.load(open(sys.argv[1]))['files']) == 3" "$folder/out.json"
if NVCC="$folder/nvcc" python3 "$source/tools/gpu/foreign_kernels.py" "$folder" --program "$program" 2>"$folder/err"; then
  echo "a folder without kernels was taken"
  exit 1
fi
grep -q "got no \*.cu in" "$folder/err"
