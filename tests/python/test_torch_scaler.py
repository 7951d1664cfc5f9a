# SPDX-License-Identifier: Apache-2.0
"""Scalers of torch under the audit of the program: torch's own, and one planted fault at a time."""

import ampcheck
import pytest
import torch
from ampcheck.torch import audit_scaler

torch.set_num_threads(1)  # small tensors


class Checked(torch.amp.GradScaler):
    """torch's scaler on the CPU."""

    def __init__(self, **settings):
        super().__init__("cpu", **settings)


class NeverSkips(Checked):
    def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
        return optimizer.step(*args, **kwargs)


class ForgetsTheCount(Checked):
    def state_dict(self):
        return super().state_dict() | {"_growth_tracker": 0} if self.is_enabled() else {}


class UnscalesTwice(Checked):
    def unscale_(self, optimizer):
        if self.is_enabled():
            self._per_optimizer_states[id(optimizer)]["stage"] = torch.amp.grad_scaler.OptState.READY
        super().unscale_(optimizer)


class GrowsLate(Checked):
    def __init__(self, growth_interval=2000, **settings):
        super().__init__(growth_interval=growth_interval + 1, **settings)


class ScalesByHalf(Checked):
    def scale(self, outputs):
        return super().scale(outputs) * (0.5 if self.is_enabled() else 1)


def weak(report):
    return [c["code"] for c in report.checks if c["outcome"] == "WEAK"]


@pytest.mark.parametrize("scaler", [torch.amp.GradScaler("cpu"), torch.amp.GradScaler, Checked,
                                    lambda **settings: torch.amp.GradScaler("cpu", **settings)])
def test_torchs_own_is_right(scaler):
    report = audit_scaler(scaler)
    assert report, report
    assert weak(report) == ["S3", "S4", "S9", "S16", "S23"]  # as of the built-in rule
    assert {c["code"] for c in report.checks if c["outcome"] == "not asked"} == {"S5", "S20", "S22"}


@pytest.mark.parametrize("scaler, code", [(NeverSkips, "S11"), (ForgetsTheCount, "S18"), (UnscalesTwice, "S14"),
                                          (GrowsLate, "S1"), (ScalesByHalf, "S13")])
def test_faults_are_found_by_their_code(scaler, code):
    report = audit_scaler(scaler)
    assert not report
    assert report.code == code, report
    assert code in str(report)


def test_another_rule_differs():
    report = audit_scaler(torch.amp.GradScaler("cpu"), rule="megatron")
    assert report.code in ("S1", "S5"), report


def test_what_is_no_scaler_is_said():
    with pytest.raises(ampcheck.UsageError, match="want a scaler, its class, or a function"):
        audit_scaler(3)
    with pytest.raises(ampcheck.UsageError, match="does not take growth_factor, backoff_factor"):
        audit_scaler(lambda init_scale, growth_interval, enabled: None)
    with pytest.raises(ampcheck.UsageError, match="without scale, unscale_"):
        audit_scaler(lambda **settings: 3)
    with pytest.raises(ampcheck.UsageError, match="did you mean 'torch'"):
        audit_scaler(Checked, rule="torhc")
