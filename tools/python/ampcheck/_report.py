# SPDX-License-Identifier: Apache-2.0
"""What a check found, as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Element:
    """One element outside of its interval."""

    index: tuple[int, ...]
    got: float
    want: float
    ulp: float
    low: float
    high: float
    interval_from: str


@dataclass(frozen=True)
class Finding:
    """A failing case in short: the check that decides it. index, got, want, low and high are of the worst element, None
    where the finding is of no element (a crash, a changed input)."""

    verdict: str
    code: str
    case: str
    check: str
    tensor: str
    cause: str
    note: str
    worst: list[Element]
    smallest_case: str
    values: str
    _inputs: Callable[[str], dict[str, Any]] = field(repr=False, compare=False)

    @property
    def index(self) -> tuple[int, ...] | None:
        return self.worst[0].index if self.worst else None

    @property
    def got(self) -> float | None:
        return self.worst[0].got if self.worst else None

    @property
    def want(self) -> float | None:
        return self.worst[0].want if self.worst else None

    @property
    def low(self) -> float | None:
        return self.worst[0].low if self.worst else None

    @property
    def high(self) -> float | None:
        return self.worst[0].high if self.worst else None

    @property
    def smallest(self) -> dict[str, Any]:
        """The inputs of the smallest failing case (of this case, where none smaller was found), as arrays."""
        return self._inputs(self.smallest_case or self.case)

    def __str__(self) -> str:
        out = f"{self.verdict} {self.code} {self.check} in '{self.case}'"
        if self.worst:
            out += f": at {list(self.worst[0].index)} got {self.got!r}, allowed [{self.low!r}, {self.high!r}]"
        return out + (f"; {self.cause}" if self.cause else f"; {self.note}" if self.note else "")


@dataclass(frozen=True)
class Power:
    """Of the changes of the formula (a term left out, a factor, a sign, a tail, a count that is off by one, sums in fewer bits)
    those that a report's cases would show. Changes that move none of their numbers are not counted."""

    found: int
    changes: int
    missed: list[str]
    cases: int  # that were looked at

    @property
    def share(self) -> float | None:
        return self.found / self.changes if self.changes else None


class Report:
    """True iff everything that was chosen ran and nothing failed. str() is the report that the program prints."""

    def __init__(self, core: Any, *, formula: str, seed: int, notes: list[str], inputs: Callable[[str], dict[str, Any]],
                 power: Callable[[], dict[str, Any]]):
        self._core = core
        self._power = power
        #: The formula that the function was judged by: `ampcheck check --formula` takes it.
        self.formula = formula
        #: The first seed of the data.
        self.seed = seed
        #: What a reader should know of the run as a whole.
        self.notes: list[str] = [*notes, *core.notes]
        self._own_notes = notes
        #: Inputs of a case by its name, as arrays.
        self.inputs = inputs
        self._late: Finding | None = None
        #: Findings that `verify` took out again.
        self.excused = 0
        #: Of `verify`: at how many shapes the solution ran the torch operations of the reference (_same_ops.py).
        self.reference_ops: dict[str, Any] | None = None
        self.findings: list[Finding] = [_finding(one, inputs) for one in core.findings]

    def add_late(self, output: str) -> None:
        """A finding of Python's own: results that change after the call has returned. The judge has a copy of them."""
        case = self.findings[0].case if self.findings else ""
        self._late = Finding("STRUCTURAL", "AC411", case, f"history {output}", output,
                             "what it returns is written after the call has returned: work of its own still runs then", "", [],
                             "", "", self.inputs)
        self.findings.insert(0, self._late)

    @property
    def passed(self) -> bool:
        return bool(self._core.passed) and self._late is None

    @property
    def seconds(self) -> float:
        return float(self._core.seconds)

    @property
    def totals(self) -> dict[str, int]:
        """cases, passed, failed, skipped, elements, blind."""
        return dict(self._core.totals)

    def power(self) -> Power:
        """The detection power of these cases; the kernel does not run."""
        return Power(**self._power())

    def to_json(self) -> str:
        """The report as `ampcheck check --json` writes it: schema ampcheck.check/1."""
        out = str(self._core.to_json())
        if self._late is None:
            return out
        data = json.loads(out)
        data["notes"] = [*data["notes"], str(self._late)]
        return json.dumps(data)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        late = f"{self._late}\n" if self._late is not None else ""
        return str(self._core.to_text()) + late + "".join(f"note: {note}\n" for note in self._own_notes)

    def __repr__(self) -> str:
        totals = self.totals
        return f"<ampcheck.Report: {totals['cases']} cases, {totals['failed']} failed, seed {self.seed}>"


def _finding(from_: dict[str, Any], inputs: Callable[[str], dict[str, Any]]) -> Finding:
    return Finding(verdict=from_["verdict"], code=from_["code"], case=from_["case"], check=from_["check"],
                   tensor=from_["tensor"], cause=from_["cause"], note=from_.get("note", ""),
                   worst=[Element(**element) for element in from_["worst"]], smallest_case=from_.get("smallest", ""),
                   values=from_.get("values", ""), _inputs=inputs)
