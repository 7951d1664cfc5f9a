# SPDX-License-Identifier: Apache-2.0
"""pytest: `def test_norm(ampcheck): ampcheck(my_norm, reference=eager)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ._core import UsageError
from ._report import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ampcheck", "ampcheck: is this number wrong, or only rounded?")
    group.addoption("--ampcheck-regimes", choices=["quick", "standard", "all"], default=None,
                    help="how much data the cases have (default: what the test says, else standard)")
    group.addoption("--ampcheck-seed", type=int, default=None, help="the first seed of the data")
    group.addoption("--ampcheck-budget", type=float, default=None, metavar="SECONDS",
                    help="seconds after which no further case of a check starts")


@pytest.fixture(name="ampcheck")
def _ampcheck(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """ampcheck.check, whose finding fails the test with the report."""
    from ._check import check

    given = {"regimes": request.config.getoption("--ampcheck-regimes"),
             "seed": request.config.getoption("--ampcheck-seed"),
             "budget_s": request.config.getoption("--ampcheck-budget")}

    def run(f: Callable[..., Any], *arguments: Any, **options: Any) -> Report:
        __tracebackhide__ = True
        options.update({name: value for name, value in given.items() if value is not None})
        try:
            report = check(f, *arguments, **options)
        except UsageError as error:
            raise error.with_traceback(None) from None  # the line of the test, and none of ours
        request.node.user_properties.append(("ampcheck", repr(report)))
        if not report:
            # The line of pytest's summary is the first one.
            pytest.fail(f"{report.findings[0]}\n\n{report}" if report.findings else str(report), pytrace=False)
        return report

    return run
