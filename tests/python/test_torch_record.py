# SPDX-License-Identifier: Apache-2.0
"""Training loops of torch on the CPU, recorded and read by the program."""

import json
import subprocess
import sys

import ampcheck
import pytest
import torch
from ampcheck.torch import record


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "ampcheck", *arguments], capture_output=True, text=True, check=False)


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


def train(path, steps, *, scaler, every=1, clip=None):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(16, 64), torch.randint(0, 10, (16,))
    losses = []
    with record(path, model, optimizer, scaler, every=every):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = torch.nn.functional.cross_entropy(model(x).float(), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    return losses


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_run_of_a_scaler_is_recorded_and_healthy(tmp_path):
    path = tmp_path / "run.trace"
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=5)
    losses = train(path, 40, scaler=scaler)
    steps = [line for line in lines(path) if "loss" in line]
    assert [line["loss"] for line in steps] == losses
    skips = sum(not line["stepped"] for line in steps)
    assert skips > 0  # 2^26 is too large at first
    assert steps[-1]["scale_after"] == scaler.get_scale()
    for line in steps:
        assert line["found_inf"] == (line["scale_after"] < line["scale"])
    assert lines(path)[0]["autocast"] == "cpu"
    told = program("audit", "scaler", "--log", str(path))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "HARMLESS" in told.stdout and "trace of ampcheck" in told.stdout
    traced = program("trace", str(path))
    assert traced.returncode == 0, traced.stderr
    assert f"{len(steps)} of {len(steps)} steps" in traced.stdout and "linear_1 (0) forward y" in traced.stdout


def test_a_scale_that_is_set_back_is_found(tmp_path):
    path = tmp_path / "run.trace"
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    update = scaler.update
    scaler.update = lambda: update(2.0**30)  # a checkpoint's scale, put back in each step
    train(path, 40, scaler=scaler)
    told = program("audit", "scaler", "--log", str(path))
    assert told.returncode == 1, told.stdout
    assert "BROKEN" in told.stdout


def test_statistics_are_those_of_the_tensors(tmp_path):
    path = tmp_path / "run.trace"
    model = torch.nn.Linear(4, 3, bias=False).bfloat16()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 0.0, 0.5]] * 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)  # below half a unit of bf16: nothing moves
    with record(path, model, optimizer) as recorder:
        loss = model(torch.tensor([[1.0, 1.0, float("inf"), 2.0]], dtype=torch.bfloat16)[:, [0, 1, 3, 3]]).float().sum()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    tensors = {(line["phase"], line["tensor"]): line for line in lines(path) if "seq" in line}
    y = tensors["forward", "y"]
    assert (y["elements"], y["zero"], y["nan"], y["inf"]) == (3, 3, 0, 0)  # 1 - 2 + 0 + 1
    assert tensors["backward", "dweight"]["amax"] == 2.0
    value = tensors["optimizer", "value"]
    assert value["amax"] == 2.0 and value["exponents"][1][-3:] == [3, 3, 3]  # 0.5, 1, 2
    assert (value["intended"], value["stagnant"]) == (12, 9)  # zeros move at any rate
    told = program("trace", str(path))
    assert told.returncode == 0 and "stagnant" in told.stdout, told.stderr


def test_every_records_tensors_of_some_steps_and_the_loss_of_all(tmp_path):
    path = tmp_path / "run.trace"
    train(path, 9, scaler=torch.amp.GradScaler("cpu", init_scale=16.0), every=4)
    assert len([line for line in lines(path) if "loss" in line]) == 9
    assert {line["step"] for line in lines(path) if "seq" in line} == {0, 4, 8}


def test_the_model_is_left_as_it_was(tmp_path):
    plain, recorded = [], []
    for out, path in ((plain, None), (recorded, tmp_path / "run.trace")):
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
        torch.manual_seed(1)
        if path is not None:
            out += train(path, 5, scaler=scaler)
            assert "scale" not in vars(scaler) and "update" not in vars(scaler)
        else:
            out += train(tmp_path / "other.trace", 5, scaler=scaler, every=1000)
    assert plain == recorded


def test_wrong_use_is_told(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ampcheck.UsageError, match="every"):
        record(tmp_path / "t", model, optimizer, every=0)
    scaler = torch.amp.GradScaler("cpu")
    with record(tmp_path / "t", model, optimizer, scaler) as recorder, \
            pytest.raises(ampcheck.UsageError, match=r"scaler\.update"):
        recorder.step(1.0)
