# SPDX-License-Identifier: Apache-2.0
"""Errors that say of a function only that it needs what is not here: a GPU, its driver, a tool that builds."""

from __future__ import annotations

import re

#: What torch and Triton say where there is no GPU, or no CUDA.
_NO_GPU = re.compile("0 active drivers|NVIDIA driver|CUDA driver|cudaErrorInsufficientDriver|no CUDA GPUs|"
                     "not compiled with CUDA|cannot be accessed from Triton")
#: What torch's load and load_inline say where they cannot build.
_NO_TOOL = re.compile("CUDA_HOME|nvcc|[Nn]inja")


def missing_gpu(error: BaseException) -> str:
    """What to do about an error that a machine with a GPU would not have; "" of every other one."""
    from sys import modules

    if isinstance(error, ImportError) or not _NO_GPU.search(str(error)) or _has_gpu(modules.get("torch")):
        return ""
    if "triton" in modules:
        return "a GPU; Triton functions run without one if TRITON_INTERPRET=1 is set before triton is imported"
    return "a GPU and its driver"


def _has_gpu(torch: object) -> bool:
    try:
        return bool(torch.cuda.is_available())  # type: ignore[attr-defined]
    except Exception:
        return False


def missing_tool(error: BaseException) -> str:
    """The tool that a build did not find, as the error names it; "" of every other error."""
    found = _NO_TOOL.search(str(error))
    return found.group(0) if found else ""
