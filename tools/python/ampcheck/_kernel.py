# SPDX-License-Identifier: Apache-2.0
"""A Python function as the kernel of an op."""

from __future__ import annotations

import inspect
import math
import os
import struct
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ._core import UsageError
from ._frames import Memory
from ._triton import as_on_a_gpu

_HERE = os.path.dirname(os.path.abspath(__file__))
_SETTLES = (0.02, 1.0)  # seconds, and further ones while threads run
_STANDARD = (os.path.dirname(os.__file__) + os.sep, "<frozen")  # Python's own library


class Watch:
    """Since when the function that is judged runs: who waits for a verdict in vain may ask. `shared`: eight bytes that another
    process sees, or none."""

    shared: Any = None

    def __enter__(self) -> None:
        if self.shared is not None:
            self.shared[:8] = struct.pack("d", time.monotonic())

    def __exit__(self, *_: object) -> None:
        if self.shared is not None:
            self.shared[:8] = bytes(8)

    def seconds(self) -> float:
        """That it runs by now; 0 where it does not."""
        since = float(struct.unpack("d", self.shared[:8])[0])
        return time.monotonic() - since if since else 0.0


#: Of this process.
running = Watch()


class KernelFailed(Exception):
    """What the function raised, as one line for the finding: type, text, and the caller's own line."""

    def __init__(self, error: BaseException) -> None:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE)]
        own = [f for f in frames if "site-packages" not in f.filename and not f.filename.startswith(_STANDARD)] or frames
        if own:
            said += f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})"
        self.ampcheck_said = " ".join(said.split())
        super().__init__(self.ampcheck_said)


def parameters_of(f: Callable[..., Any]) -> list[str] | None:
    """The names of the parameters that can be given by position; None where Python cannot say."""
    try:
        signature = inspect.signature(getattr(f, "forward", f) if hasattr(f, "named_parameters") else f)
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def _takes(f: Callable[..., Any], name: str) -> bool:
    try:
        found = inspect.signature(f).parameters
    except (TypeError, ValueError):
        return False
    return name in found and found[name].kind != inspect.Parameter.POSITIONAL_ONLY or any(
        p.kind == inspect.Parameter.VAR_KEYWORD for p in found.values())


class Returned:
    """What the last call returned: whether it is written before the next one begins. A function may use its own memory again
    in the next call, so no longer. Of the first calls and of small results alone: it is kept twice."""

    _CALLS, _ELEMENTS = 100, 1 << 17

    def __init__(self, bits: Callable[[Any], bytes]) -> None:
        self._bits = bits
        self._calls = 0
        self._last: list[tuple[Any, bytes]] = []
        self.late = False

    def settle(self, threads: set[int | None]) -> None:
        """After the first call: gives work of its own time to end, above all Python's threads that are none of `threads`."""
        end = time.monotonic() + _SETTLES[0]
        while time.monotonic() < end or (time.monotonic() < end + _SETTLES[1] and
                                         any(t.ident not in threads for t in threading.enumerate())):
            time.sleep(0.005)

    def next_call(self) -> None:
        try:
            self.late = self.late or any(self._bits(value) != before for value, before in self._last)
        except Exception:  # what is no array is said elsewhere
            pass
        self._last = []

    def keep(self, got: Sequence[Any]) -> None:
        self._calls += 1
        if self._calls > self._CALLS or sum(math.prod(getattr(value, "shape", ())) for value in got) > self._ELEMENTS:
            return
        try:
            self._last = [(value, self._bits(value)) for value in got]
        except Exception:
            self._last = []

    def written_late(self) -> bool:
        """After the last call."""
        self.next_call()
        return self.late


class Call:
    """How the function is called: each of its arguments is an input of the op (by its number) or a constant."""

    def __init__(self, f: Callable[..., Any], slots: Sequence[tuple[str, int | None, Any]], by_name: bool,
                 attributes: Sequence[str]) -> None:
        self.f = f
        self.slots = slots  # (argument, number of the input or None, constant)
        self.by_name = by_name
        self.attributes = attributes
        self.passed = [name for name in attributes if _takes(f, name)]
        self.returned: Returned | None = None  # of the function that is judged

    def __call__(self, tensors: Sequence[Any], attributes: Sequence[float]) -> list[Any]:
        values = [constant if at is None else tensors[at] for _, at, constant in self.slots]
        named = {name: value for name, value in zip(self.attributes, attributes) if name in self.passed}
        if self.by_name:
            named.update({name: value for (name, _, _), value in zip(self.slots, values)})
            values = []
        if self.returned is not None:
            self.returned.next_call()
        with as_on_a_gpu:
            got = self.f(*values, **named)
        out = list(got) if isinstance(got, (tuple, list)) else [got]
        if self.returned is not None:
            self.returned.keep(out)
        return out


class Kernel:
    """The two functions that the judge calls; see described_op.h."""

    def __init__(self, frame: Any, call: Call, booleans: Sequence[bool], outputs: Sequence[str], inputs: Sequence[str],
                 picked: Sequence[int] | None = None) -> None:
        self._frame = frame
        self._call = call
        self._booleans = booleans
        self._outputs = outputs
        self._inputs = inputs
        self._picked = picked  # which results of the function are outputs of the op
        self._backward: Callable[..., Any] | None = None

    def _taken(self, inputs: Sequence[Memory | None]) -> list[Any]:
        return [None if memory is None else self._frame.taken(at, memory, self._booleans[at])
                for at, memory in enumerate(inputs)]

    def _results(self, tensors: Sequence[Any], attributes: Sequence[float]) -> list[Any]:
        got = self._call(tensors, attributes)
        if self._picked is not None and max(self._picked) < len(got):
            got = [got[at] for at in self._picked]
        if len(got) != len(self._outputs):
            raise ValueError(f"the function returned {len(got)} results, want {len(self._outputs)}")
        return got

    def forward(self, storage: str, inputs: list[Memory | None], outputs: list[Memory], attributes: list[float]) -> None:
        try:
            tensors = self._taken(inputs)
            with self._frame.quiet(), running:
                results = self._results(tensors, attributes)
            for got, memory, name in zip(results, outputs, self._outputs):
                self._frame.put(got, memory, f"result '{name}'")
            for tensor, given in zip(tensors, inputs):
                if given is not None:
                    self._frame.changed(tensor, given)
        except Exception as error:
            raise KernelFailed(error) from error

    def backward(self, storage: str, inputs: list[Memory | None], cotangents: list[Memory],
                 gradients: list[Memory | None], attributes: list[float]) -> None:
        try:
            tensors = self._taken(inputs)
            arriving = [self._frame.taken(f"d{name}", memory, False) for name, memory in zip(self._outputs, cotangents)]
            wanted = [memory is not None for memory in gradients]
            with self._frame.quiet(), running, as_on_a_gpu:
                got = self._gradients(tensors, wanted, arriving, attributes)
            for gradient, given, name in zip(got, gradients, self._inputs):
                if given is None:
                    continue
                if gradient is None:  # by autograd's convention: nothing flows
                    given[0][:] = bytes(len(given[0]))
                else:
                    self._frame.put(gradient, given, f"gradient 'd{name}'")
        except Exception as error:
            raise KernelFailed(error) from error

    def _gradients(self, tensors: list[Any], wanted: list[bool], arriving: list[Any],
                   attributes: list[float]) -> list[Any]:
        if self._backward is None:
            return self._autograd(tensors, wanted, arriving, attributes)
        got = self._backward(tensors, wanted, arriving, attributes)
        if isinstance(got, dict):
            got = [got.get(f"d{name}") for name in self._inputs]
        got = list(got) if isinstance(got, (tuple, list)) else [got]
        if len(got) == sum(wanted) and len(got) != len(self._inputs):
            given = iter(got)
            got = [next(given) if want else None for want in wanted]
        if len(got) != len(self._inputs):
            raise ValueError(f"backward returned {len(got)} gradients, want {len(self._inputs)}, one for each input")
        return got

    def _autograd(self, tensors: list[Any], wanted: list[bool], arriving: list[Any], attributes: list[float]) -> list[Any]:
        backward = self._frame.autograd(lambda leaves: self._results(leaves, attributes))
        return list(backward(tensors, wanted, arriving))

    def use_backward(self, f: Callable[..., Any], attributes: Sequence[str]) -> None:
        """backward(dy..., x...): gradients that come in, then the inputs; by name where its parameters have these names.
        It returns the gradients in the order of the inputs, None for one without, or {"dx": ...}."""
        names = [f"d{name}" for name in self._outputs] + list(self._inputs)
        known = parameters_of(f) or []
        by_name = set(names) <= set(known)
        passed = [name for name in attributes if _takes(f, name)]
        if not by_name and known and len(known) < len(names):
            raise UsageError(f"[backward] got a function of ({', '.join(known)}), want ({', '.join(names)})")

        def call(tensors: list[Any], wanted: list[bool], arriving: list[Any], values: Sequence[float]) -> Any:
            arguments = [*arriving, *tensors]
            named = {name: value for name, value in zip(attributes, values) if name in passed}
            if by_name:
                return f(**dict(zip(names, arguments)), **named)
            return f(*arguments, **named)

        self._backward = call
