# SPDX-License-Identifier: Apache-2.0
"""Runs of torch with two losses and three optimizers, for tests/checks/train/several_test.cpp.

    python3 tests/data/make_torch_two_losses.py > tests/data/torch_two_losses.json

One body (SGD) and two heads, classes (Adam) and pixels (SGD), of images of digits.csv. GradScaler on the CPU; each optimizer skips by
itself. `backward`: one of the weighted sum, or one for each loss with retain_graph. Weights follow from their place. The losses in fp64
are of the same run in fp64, which steps where the run stepped. torch 2.15.0 on one thread.

In `clipped` each optimizer's gradients are clipped by themselves, after its unscale_: `clip` has max_norm and clip_value of each, in
the order of the optimizers. `norms` is what clip_grad_norm_ returned (null: it was not called, or not finite), `clipped_norms` is of what
the optimizer got, `weight_norms` of what it left.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

ROWS, STEPS, LR = 32, 14, 0.05
SHAPES = {"body.weight": (32, 64), "body.bias": (32,), "classes.weight": (10, 32), "classes.bias": (10,),
          "pixels.weight": (64, 32), "pixels.bias": (64,)}
OPTIMIZERS = [("body", lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, foreach=False)),
              ("classes", lambda p: torch.optim.Adam(p, lr=0.003, foreach=False)),
              ("pixels", lambda p: torch.optim.SGD(p, lr=0.02, foreach=False))]


def start(name, shape, dtype):
    count = torch.Size(shape).numel()
    return torch.tensor([(i * 37 % 101 - 50) / (256 if len(shape) > 1 else 4096) for i in range(count)], dtype=dtype).reshape(shape)


def norm_of(tensors):
    """In fp64: no rounding of its own. None if it is not finite, which JSON has no word for."""
    norm = math.sqrt(sum(t.detach().double().square().sum().item() for t in tensors))
    return norm if math.isfinite(norm) else None


def clip_each(optimizers, clip, scaler):
    """As torch's recipe: unscale_ of one optimizer, then clip_grad_norm_ and clip_grad_value_ of its parameters."""
    norms = []
    for optimizer, (max_norm, clip_value) in zip(optimizers, clip):
        own = [p for group in optimizer.param_groups for p in group["params"]]
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(own, max_norm).item() if max_norm else None
        norms.append(norm if norm is not None and math.isfinite(norm) else None)
        if clip_value:
            torch.nn.utils.clip_grad_value_(own, clip_value)
    return norms


def run(rows, each, low, scaler_args, weight, steps_of=None, clip=None):
    """steps_of: of an earlier run, which this one steps with, in fp64."""
    dtype = torch.float64 if steps_of else torch.float32
    parameters = {n: torch.nn.Parameter(start(n, s, dtype)) for n, s in SHAPES.items()}
    optimizers = [make([p for n, p in parameters.items() if n.startswith(name)]) for name, make in OPTIMIZERS]
    scaler = torch.amp.GradScaler("cpu", **(scaler_args or {}), enabled=scaler_args is not None and not steps_of)
    made = [0] * len(optimizers)
    for k, optimizer in enumerate(optimizers):
        optimizer.register_step_post_hook(lambda *_, k=k: made.__setitem__(k, made[k] + 1))
    out = []
    for step in range(STEPS):
        chosen = [rows[(step * ROWS + i) % len(rows)] for i in range(ROWS)]
        x = torch.tensor([r[:64] for r in chosen], dtype=torch.float64).div(16).to(dtype)
        y = torch.tensor([int(r[64]) for r in chosen])
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cpu", low, enabled=not steps_of):
            linear = lambda h, layer: F.linear(h, parameters[layer + ".weight"], parameters[layer + ".bias"])
            h = torch.tanh(linear(x, "body"))
            losses = [F.cross_entropy(linear(h, "classes"), y), F.mse_loss(linear(h, "pixels"), x)]
        weighted = [weight * losses[0], losses[1]]
        scale = scaler.get_scale()
        if each:
            scaler.scale(weighted[0]).backward(retain_graph=True)
            scaler.scale(weighted[1]).backward()
        else:
            scaler.scale(weighted[0] + weighted[1]).backward()
        seen = {}
        if clip:
            grads = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
            seen["norms"] = clip_each(optimizers, clip, scaler)
            seen["clipped_norms"] = [norm_of([p.grad for p in own]) for own in grads]
        before = list(made)
        for k, optimizer in enumerate(optimizers):
            if steps_of is None:
                scaler.step(optimizer)
            elif steps_of[step]["stepped"][k]:
                optimizer.step()
        scaler.update()
        if clip:
            seen["weight_norms"] = [norm_of(own) for own in grads]
        out.append({**seen, "losses": [loss.item() for loss in losses], "scale": scale, "scale_after": scaler.get_scale(),
                    "stepped": [made[k] > before[k] for k in range(len(optimizers))]})
    return out


def main():
    torch.set_num_threads(1)
    file = pathlib.Path(__file__).parent / "digits.csv"
    rows = [[float(v) for v in line.split(",")] for line in file.read_text().splitlines() if line.strip()]
    runs = []
    for each in (False, True):
        for low, scaler, weight in (("float16", {"init_scale": 2.0**21, "growth_interval": 3}, 4.0), ("bfloat16", None, 0.5)):
            steps = run(rows, each, getattr(torch, low), scaler, weight)
            exact = run(rows, each, getattr(torch, low), scaler, weight, steps)
            for got, want in zip(steps, exact):
                got["fp64_losses"] = want["losses"]
            runs.append({"backward": "each" if each else "sum", "dtype": low, "scaler": scaler, "weight": weight, "steps": steps})
    clipped = []
    for each, low, scaler, weight, clip in (
            (True, "float16", {"init_scale": 2.0**21, "growth_interval": 3}, 4.0, [(0.5, None), (0.3, None), (None, 0.001)]),
            (False, "bfloat16", None, 0.5, [(0.25, None), (0.05, 0.004), (None, None)])):
        steps = run(rows, each, getattr(torch, low), scaler, weight, clip=clip)
        exact = run(rows, each, getattr(torch, low), scaler, weight, steps, clip)
        for got, want in zip(steps, exact):
            got.update({"fp64_" + name: want[name] for name in ("losses", "norms", "clipped_norms", "weight_norms")})
        clipped.append({"backward": "each" if each else "sum", "dtype": low, "scaler": scaler, "weight": weight, "clip": clip, "steps": steps})
    json.dump({"torch": torch.__version__.split("+")[0], "runs": runs, "clipped": clipped}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
