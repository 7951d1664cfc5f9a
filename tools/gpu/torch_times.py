# SPDX-License-Identifier: Apache-2.0
"""torch_times.py BANDWIDTH.json OUT.json: torch's own unscaling, fused Adam and statistics on this GPU, on tensors like those
of `gpu_probe bandwidth`, and how ours compare. Exit code 77 where torch sees no GPU."""
import json
import sys
import time

import torch

ROUNDS = 10


def fastest(work):
    """Seconds of the fastest of ROUNDS; the first does not count."""
    best = float("inf")
    for i in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if i > 0:
            best = min(best, time.perf_counter() - start)
    return best


def tensors(count, elements, dtype, value):
    row = value * (1 + torch.arange(elements, device="cuda", dtype=torch.float32) % 1000 * 1e-3)
    return [row.to(dtype).clone() for _ in range(count)]


def unscale_seconds(count, elements, dtype):
    grads = tensors(count, elements, dtype, 1e-3)
    found, inverse = torch.zeros(1, device="cuda"), torch.full((1,), 0.5, device="cuda")

    def work():
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        found.item()  # the scaler waits for it

    return fastest(work)


def adam_seconds(count, elements):
    parameters = [torch.nn.Parameter(t) for t in tensors(count, elements, torch.float32, 1)]
    for parameter, grad in zip(parameters, tensors(count, elements, torch.float32, 1e-3)):
        parameter.grad = grad
    optimizer = torch.optim.Adam(parameters, fused=True)
    return fastest(optimizer.step)


def statistics_seconds(count, elements, dtype):
    """What a script would print of each tensor: the largest magnitude, zeros and non-finite elements, the mean."""
    grads = tensors(count, elements, dtype, 1e-3)

    def work():
        for grad in grads:
            values = torch.stack([grad.abs().amax().float(), (grad == 0).sum().float(),
                                  (~torch.isfinite(grad)).sum().float(), grad.float().mean()])
            values.tolist()

    return fastest(work)


def copy_rate(count, elements):
    source = torch.ones(count * elements, device="cuda")
    target = torch.empty_like(source)
    return 2 * 4 * count * elements / fastest(lambda: target.copy_(source))


def main(ours_file, out_file):
    if not torch.cuda.is_available():
        print("torch", torch.__version__, "sees no GPU")
        return 77
    try:
        with open(ours_file) as file:
            ours = json.load(file)
    except (OSError, ValueError) as error:
        print("= nothing of ours to compare with:", error)
        ours = {"tensors": 64, "elements": 1 << 20, "measured": []}
    count, elements = ours["tensors"], ours["elements"]
    seconds = {"fused Adam fp32": adam_seconds(count, elements)}
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        seconds["unscale " + name] = unscale_seconds(count, elements, dtype)
        seconds["statistics by the host " + name] = statistics_seconds(count, elements, dtype)
    out = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "copy_bytes_per_second": copy_rate(count, elements),
           "measured": []}
    mine = {entry["what"]: entry["seconds"] for entry in ours["measured"]}
    for what, torchs in sorted(seconds.items()):
        entry = {"what": what, "torch_seconds": torchs}
        line = f"= {what}: torch {torchs * 1e3:.3f} ms"
        if what in mine:
            entry.update(seconds=mine[what], torch_to_ours=torchs / mine[what])
            line += f", ours {mine[what] * 1e3:.3f} ms: torch takes {torchs / mine[what]:.2f} times as long"
        print(line)
        out["measured"].append(entry)
    with open(out_file, "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
