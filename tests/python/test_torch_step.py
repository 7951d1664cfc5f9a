# SPDX-License-Identifier: Apache-2.0
"""A training step of torch under the audit of the program: right ones, and one planted fault at a time."""

import copy

import ampcheck
import pytest
import torch
from ampcheck.torch import TrainingStep, audit_step

torch.set_num_threads(1)  # small tensors


def maker(fault="", optimizer=torch.optim.AdamW, **options):
    def make(setup):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        opt = optimizer(model.parameters(), lr=0.05, **options)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=setup.scale, growth_interval=setup.growth_interval)

        def step(batches):
            opt.zero_grad()
            total = 0.0
            for batch in batches:
                data = torch.Generator().manual_seed(batch)
                x, y = torch.randn(16, 8, generator=data), torch.randint(0, 3, (16,), generator=data)
                loss = torch.nn.functional.cross_entropy(model(x), y) / setup.accumulate
                scaler.scale(loss).backward()
                total += loss.item()
            if fault == "nan_to_num":
                for p in model.parameters():
                    p.grad.nan_to_num_(0.0, 0.0, 0.0)
            if setup.clip is not None:
                if fault != "clips_scaled":
                    scaler.unscale_(opt)
                torch.nn.utils.clip_grad_norm_(model.parameters(), setup.clip)
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() >= before or fault == "schedule":
                schedule.step()
            return total

        parts = {"model": model, "opt": opt, "schedule": schedule}
        if fault != "no_scaler_state":
            parts["scaler"] = scaler

        def load(kept):
            for name, part in parts.items():
                part.load_state_dict(kept[name])

        return TrainingStep(step, model, opt, scaler, schedule,
                            save=lambda: {k: copy.deepcopy(p.state_dict()) for k, p in parts.items()}, load=load)
    return make


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": True}])
def test_right_steps_pass(options):
    report = audit_step(maker(**options), clip=True, accumulate=True)
    assert report, report
    assert {c["code"] for c in report.checks if c["outcome"] == "not asked"} == {"L8", "L10", "L11", "L20"}


@pytest.mark.parametrize("fault, code", [("schedule", "L9"), ("nan_to_num", "L4"), ("clips_scaled", "L15"),
                                         ("no_scaler_state", "L18")])
def test_faults_are_found_by_their_code(fault, code):
    report = audit_step(maker(fault), clip=True, accumulate=True)
    assert not report
    assert report.code == code, report
    assert code in str(report)


def test_what_the_loop_raises_comes_back():
    def make(setup):
        made = maker()(setup)

        def step(batches):
            raise RuntimeError("out of data")
        made.step = step
        return made

    with pytest.raises(RuntimeError, match="out of data"):
        audit_step(make)
    with pytest.raises(ampcheck.UsageError, match="did you mean 'torch'"):
        audit_step(maker(), rule="torhc")
