# SPDX-License-Identifier: Apache-2.0
# A softmax of rows in Triton, and one that forgets the tail of a row; block sizes and types as below make softmax.ptx and
# dropped_tail.ptx, without a GPU: python3 tests/data/triton/softmax.py (Triton 3.9)
import os
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, y, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns)


@triton.jit
def dropped_tail(x, y, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    e = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride + at, e / tl.sum(e, axis=0), mask=at < columns // 4 * 4)


def ptx(kernel):
    source = ASTSource(fn=kernel, signature={"x": "*fp32", "y": "*fp32", "stride": "i32", "columns": "i32", "BLOCK": "constexpr"},
                       constexprs={"BLOCK": 256})
    text = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 4}).asm["ptx"]
    text = re.sub(r"\n\t\.section.*?\n\t\}", "", text, flags=re.DOTALL)  # for debuggers
    text = re.sub(r'(\.file\s+\d+ )"[^"]*/([^"/]*)"', r'\1"\2"', text)  # no folders of this machine
    return "\n".join(line.split("//")[0].rstrip() for line in text.splitlines() if line.split("//")[0].strip()) + "\n"


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    for kernel in (softmax, dropped_tail):
        with open(os.path.join(folder, kernel.__name__ + ".ptx"), "w") as out:
            out.write(ptx(kernel))
