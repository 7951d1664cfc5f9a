#!/bin/sh
# Builds librow_mean.so: by nvcc where it is there, otherwise the CPU twin alone. HEADERS: the folder with ampcheck/op.h.
# SPDX-License-Identifier: Apache-2.0
set -eu
nvcc=${NVCC-$(command -v nvcc || true)}
if [ -n "$nvcc" ]; then
  "$nvcc" -std=c++20 -O2 --fmad=false -shared -Xcompiler -fPIC -I "$HEADERS" row_mean_op.cu -o librow_mean.so
else
  c++ -std=c++20 -O2 -shared -fPIC -I "$HEADERS" -x c++ row_mean_op.cu -o librow_mean.so
fi
