# SPDX-License-Identifier: Apache-2.0
"""Small extents for references whose own are large: what follows from each other follows on, and what is needed stays."""
import random

import pytest

torch = pytest.importorskip("torch")

from ampcheck._shrink import shrunk  # noqa: E402

F = torch.nn.functional

#: reference, its inputs and parameters, how many of them are inputs, and what must hold of the shapes that come out.
CASES = {
    "an image and what is added to it upsampled": (
        lambda x, add, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1) + add,
        [(64, 32, 64, 64), (64, 32, 128, 128), (32, 32, 3, 3)], 2,
        lambda x, add, w: 1 < x[2] <= 24 and add[2:] == (2 * x[2], 2 * x[3])),
    "equal extents of which one is needed": (
        lambda x, w, gain: F.layer_norm(F.conv_transpose3d(x, w, stride=2, padding=1), (64,), gain),
        [(8, 32, 16, 32, 32), (32, 64, 4, 4, 4), (64,)], 1,
        lambda x, w, gain: x[4] == 32 and x[2] * x[3] < 16 * 32),
    "windows as large as the image stay": (
        lambda x, w: F.conv2d(x, w), [(4, 3, 7, 7), (8, 3, 7, 7)], 1, lambda x, w: x[2:] == (7, 7)),
    "two weights beside many places": (
        lambda x, a, b: F.conv2d(F.conv2d(x, a, groups=64), b), [(16, 64, 512, 512), (64, 1, 3, 3), (128, 64, 1, 1)], 1,
        lambda x, a, b: 3 <= x[2] <= 24),
    "a matrix whose extent a window needs": (
        lambda x, w, b: F.avg_pool1d(F.linear(x, w, b).unsqueeze(1), 16), [(1024, 8192), (8192, 8192), (8192,)], 1,
        lambda x, w, b: 16 <= w[0] <= 512 and w == (w[0], x[1]) and b == (w[0],)),
    "no images": (lambda x, w: x @ w, [(4096, 2048), (2048, 1024)], 1, lambda x, w: x[0] <= 64 and x[1] == w[0] == 2048),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes(name, capfd):
    reference, shapes, inputs, right = CASES[name]
    got, batch = shrunk(reference, [torch.empty(s, device="meta") for s in shapes], inputs, random.Random(1))
    out = [tuple(x.shape) for x in got]
    assert right(*out), out
    if "matrix" not in name:
        assert out[inputs:] == [tuple(s) for s in shapes[inputs:]], "parameters stay"
    assert batch >= 2
    assert "Attempting" not in capfd.readouterr().err, "what the reference does not take is no error"
    reference(*(torch.zeros(s) for s in out))
