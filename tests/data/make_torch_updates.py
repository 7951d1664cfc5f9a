# SPDX-License-Identifier: Apache-2.0
"""Facts of torch's optimizers beyond the first vector: digests of what four steps leave, for tests/src/amp/torch_updates_test.cpp.

    ATEN_CPU_CAPABILITY=avx2 python3 tests/data/make_torch_updates.py > tests/data/torch_updates.json

Inputs are exact in every dtype and follow from their place, so that the test makes them itself. The root of fp32 and fp64 is NumPy's,
which is rounded correctly: torch takes MKL's, which is one ulp off now and then, on some processors. torch 2.15.0 on one thread.
"""
import json
import struct

import numpy as np
import torch

ELEMENTS, STEPS, LR = 75, 4, 0.013
CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"weight_decay": 0.01}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"betas": [0.3, 0.6]}),
    ("AdamW", {}),
    ("AdamW", {"betas": [0.4, 0.9], "weight_decay": 0.03, "amsgrad": True}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("RMSprop", {"weight_decay": 0.01}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "maximize": True}),
]


def exact_root(x):
    if x.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.sqrt(x.detach().numpy()))
    return torchs_root(x)


torchs_root = torch.Tensor.sqrt
torch.Tensor.sqrt = exact_root
torch.Tensor.sqrt_ = lambda x: x.copy_(exact_root(x))


def weights(dtype):
    return torch.tensor([(i * 37 % 64 - 31) / 16 for i in range(ELEMENTS)], dtype=dtype)


def gradient(step, dtype):
    return torch.tensor([((i * 29 + step * 13) % 97 - 48) / 64 for i in range(ELEMENTS)], dtype=dtype)


def digest(tensors):
    """FNV-1a over the numbers as fp64."""
    out = 0xCBF29CE484222325
    for tensor in tensors:
        for byte in struct.pack(f"<{ELEMENTS}d", *tensor.detach().double().tolist()):
            out = (out ^ byte) * 0x100000001B3 % 2**64
    return f"{out:#018x}"


def row(kind, args, dtype, fused):
    parameter = torch.nn.Parameter(weights(dtype))
    flags = {"foreach": False} if kind == "RMSprop" else {"foreach": False, "fused": fused}
    optimizer = getattr(torch.optim, kind)([parameter], lr=LR, **args, **flags)
    for step in range(STEPS):
        parameter.grad = gradient(step, dtype)
        optimizer.step()
    state = optimizer.state[parameter]
    moments = [state[name] for name in sorted(state) if state[name] is not None and state[name].dim() > 0]
    return {"class": kind, "args": args, "dtype": str(dtype)[6:], "fused": fused, "digest": digest([parameter, *moments])}


torch.set_num_threads(1)
assert torch.backends.cpu.get_cpu_capability() == "AVX2", "want ATEN_CPU_CAPABILITY=avx2"
rows = [
    row(kind, args, dtype, fused)
    for kind, args in CASES
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    for fused in ((False,) if kind == "RMSprop" else (False, True))
]
print('{"torch": ' + json.dumps(torch.__version__) + f', "elements": {ELEMENTS}, "steps": {STEPS}, "lr": {LR}, "updates": [')
print(",\n".join(json.dumps(one) for one in rows) + "\n]}")
