# SPDX-License-Identifier: Apache-2.0
"""Stands for torch in gpu_check_test.sh, so that every line of tools/gpu/torch_times.py runs without it: any name that the
script uses is there and computes nothing. FAKE_TORCH_GPU=0: torch sees no GPU."""
import os
import sys

NAMES = set("""cuda arange full zeros ones empty_like stack isfinite nn optim float32 float16
_amp_foreach_non_finite_check_and_unscale_ is_available synchronize get_device_name Parameter Adam step to clone abs amax
float sum mean tolist item copy_ grad""".split())


class Anything:
    def __getattr__(self, name):
        if name not in NAMES:
            raise AttributeError(f"the fake torch has no '{name}'")
        return Anything()

    def __call__(self, *arguments, **named):
        return Anything()

    def same(self, *other):
        return Anything()

    __mod__ = __mul__ = __rmul__ = __add__ = __radd__ = __truediv__ = __eq__ = __invert__ = same


class Torch(Anything):
    __version__ = "fake"


class Cuda(Anything):
    is_available = staticmethod(lambda: os.environ.get("FAKE_TORCH_GPU") != "0")
    get_device_name = staticmethod(lambda: "fake GPU")


torch = Torch()
torch.cuda = Cuda()
sys.modules[__name__] = torch
