#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes formula_values.json: values of every op's forward, by scalar loops in mpmath (50 digits, written to 25).

An independent source for tests/reference/formulas_test.cpp: the definitions as in the papers, element by element; nothing here
comes from reference/. Needs mpmath (made with 1.3.0). Run: python3 make_formula_values.py > formula_values.json
"""
import itertools
import json

from mpmath import mp, mpf

mp.dps = 50
CASES = []


def numbers(count, salt, step=64):
    """Dyadic numbers in [-2, 2), without pattern enough: exact in every arithmetic."""
    state, out = 2 * salt + 1, []
    for _ in range(count):
        state = (state * 69069 + 12345) % 2**32
        out.append(mpf((state >> 16) % (4 * step)) / step - 2)
    return out


def emit(op, inputs, output, values, integers=None, attributes=None):
    CASES.append({
        "op": op,
        "inputs": {name: {"shape": shape, "values": [float(v) for v in data]} for name, (shape, data) in inputs.items()},
        "integers": integers or {},
        "attributes": attributes or {},
        "output": output,
        "values": [mp.nstr(v, 25) for v in values],
    })


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


UNARY = {
    "relu": lambda x: max(x, mpf(0)),
    "gelu": lambda x: x * mp.ncdf(x),
    "gelu_tanh": lambda x: x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
    "tanh": mp.tanh,
    "exp": mp.exp,
}
POINTS = [mpf(p) for p in (-6, -2.5, -1, -0.125, 0, 0.0078125, 0.5, 1, 2.75, 8)]
for name, f in UNARY.items():
    emit(name, {"x": ([2, 5], POINTS)}, "y", [f(x) for x in POINTS])
for beta in (1.0, 0.5, 3.0):
    emit("softplus", {"x": ([2, 5], POINTS)}, "y", [mp.log(1 + mp.exp(beta * x)) / mpf(beta) for x in POINTS], attributes={"beta": beta})
for slope in (0.01, 0.25):
    emit("leaky_relu", {"x": ([2, 5], POINTS)}, "y", [x if x > 0 else mpf(slope) * x for x in POINTS], attributes={"negative_slope": slope})
for alpha in (1.0, 1.7):
    emit("elu", {"x": ([2, 5], POINTS)}, "y", [x if x > 0 else mpf(alpha) * (mp.exp(x) - 1) for x in POINTS], attributes={"alpha": alpha})
for low, high in ((-1.0, 1.0), (-0.3, 2.5)):
    emit("clamp", {"x": ([2, 5], POINTS)}, "y", [min(max(x, mpf(low)), mpf(high)) for x in POINTS], attributes={"min": low, "max": high})
positive = [mpf(p) for p in (0.0009765625, 0.25, 0.75, 1, 1.5, 3, 10, 1024, 1000000, 0.5)]
emit("log", {"x": ([2, 5], positive)}, "y", [mp.log(x) for x in positive])
emit("sqrt", {"x": ([2, 5], positive)}, "y", [mp.sqrt(x) for x in positive])
emit("pow", {"x": ([2, 5], POINTS)}, "y", [x * x for x in POINTS])
emit("pow", {"x": ([2, 5], POINTS)}, "y", [x * x * x for x in POINTS], attributes={"exponent": 3.0})
emit("pow", {"x": ([2, 5], positive)}, "y", [1 / x for x in positive], attributes={"exponent": -1.0})
for exponent in (0.5, 1.25):
    emit("pow", {"x": ([2, 5], positive)}, "y", [mp.power(x, mpf(exponent)) for x in positive], attributes={"exponent": exponent})

a, b = numbers(10, 1), [v + mpf("0.0078125") for v in numbers(10, 2)]
pair = lambda x, y: {x: ([2, 5], a), y: ([2, 5], b)}
emit("add", pair("x", "y"), "z", [p + q for p, q in zip(a, b)])
emit("mul", pair("x", "y"), "z", [p * q for p, q in zip(a, b)])
emit("div", pair("x", "y"), "z", [p / q for p, q in zip(a, b)])
emit("swiglu", pair("gate", "up"), "y", [p * sigmoid(p) * q for p, q in zip(a, b)])
for n in range(2, 7):
    emit("mse_loss", {"x": ([1, n], a[:n]), "target": ([1, n], b[:n])}, "loss", [sum((p - q) ** 2 for p, q in zip(a[:n], b[:n])) / n])

N, D = 3, 7
X = numbers(N * D, 3)
emit("cumsum", {"x": ([N, D], X)}, "y", [sum(X[n * D:n * D + d + 1]) for n in range(N) for d in range(D)])
W, B = numbers(D, 4), numbers(D, 5)
x_input = {"x": ([N, D], X)}
rows = [X[i * D:(i + 1) * D] for i in range(N)]
emit("softmax", x_input, "y", [mp.exp(v) / sum(map(mp.exp, row)) for row in rows for v in row])
emit("log_softmax", x_input, "y", [v - mp.log(sum(map(mp.exp, row))) for row in rows for v in row])
for op, count in (("sum", 1), ("mean", None)):
    emit(op, x_input, "y", [sum(row) / (count or D) for row in rows], attributes={"axis": -1})
    emit(op, x_input, "y", [sum(row[d] for row in rows) / (count or N) for d in range(D)], attributes={"axis": 0})


def norm(row, eps, centre):
    mu = sum(row) / D if centre else mpf(0)
    return [(v - mu) / mp.sqrt(sum((w - mu) ** 2 for w in row) / D + eps) for v in row]


for eps in (1e-5, 0.1):
    emit("layer_norm", {**x_input, "weight": ([D], W), "bias": ([D], B)}, "y",
         [v * w + c for row in rows for v, w, c in zip(norm(row, mpf(eps), True), W, B)], attributes={"eps": eps})
    emit("rms_norm", {**x_input, "weight": ([D], W)}, "y",
         [v * w for row in rows for v, w in zip(norm(row, mpf(eps), False), W)], attributes={"eps": eps})
emit("layer_norm", x_input, "y", [v for row in rows for v in norm(row, mpf(1e-5), True)], attributes={"eps": 1e-5})

for op, choose in (("max", max), ("min", min)):
    emit(op, x_input, "y", [choose(row) for row in rows], attributes={"axis": -1})
    emit(op, x_input, "y", [choose(row[d] for row in rows) for d in range(D)], attributes={"axis": 0})

IMAGES, CHANNELS, PLACES = 2, 6, 5
SIGNAL = numbers(IMAGES * CHANNELS * PLACES, 14)
CW1, CB1 = numbers(CHANNELS, 15), numbers(CHANNELS, 16)
spot = lambda n, c, i: SIGNAL[(n * CHANNELS + c) * PLACES + i]


def statistics(values):
    mu = sum(values) / len(values)
    return mu, sum((v - mu) ** 2 for v in values)


for groups, eps in ((2, 1e-5), (3, 0.1), (1, 1e-5)):
    width, out = CHANNELS // groups, []
    for n, c, i in itertools.product(range(IMAGES), range(CHANNELS), range(PLACES)):
        first = c // width * width
        mu, squares = statistics([spot(n, d, j) for d in range(first, first + width) for j in range(PLACES)])
        out.append((spot(n, c, i) - mu) / mp.sqrt(squares / (width * PLACES) + mpf(eps)) * CW1[c] + CB1[c])
    emit("group_norm", {"x": ([IMAGES, CHANNELS, PLACES], SIGNAL), "weight": ([CHANNELS], CW1), "bias": ([CHANNELS], CB1)}, "y", out,
         attributes={"groups": groups, "eps": eps})

RUNNING_MEAN, RUNNING_VAR = numbers(CHANNELS, 17), [abs(v) + 1 for v in numbers(CHANNELS, 18)]
of_channel = [statistics([spot(n, c, i) for n in range(IMAGES) for i in range(PLACES)]) for c in range(CHANNELS)]
size = IMAGES * PLACES
batch_input = {"x": ([IMAGES, CHANNELS, PLACES], SIGNAL), "weight": ([CHANNELS], CW1), "bias": ([CHANNELS], CB1),
               "running_mean": ([CHANNELS], RUNNING_MEAN), "running_var": ([CHANNELS], RUNNING_VAR)}
for momentum, eps in ((0.1, 1e-5), (0.25, 0.1)):
    m, attributes = mpf(momentum), {"momentum": momentum, "eps": eps}
    emit("batch_norm", batch_input, "y",
         [(spot(n, c, i) - of_channel[c][0]) / mp.sqrt(of_channel[c][1] / size + mpf(eps)) * CW1[c] + CB1[c]
          for n, c, i in itertools.product(range(IMAGES), range(CHANNELS), range(PLACES))], attributes=attributes)
    emit("batch_norm", batch_input, "new_running_mean",
         [(1 - m) * old + m * mu for old, (mu, _) in zip(RUNNING_MEAN, of_channel)], attributes=attributes)
    emit("batch_norm", batch_input, "new_running_var",
         [(1 - m) * old + m * squares / (size - 1) for old, (_, squares) in zip(RUNNING_VAR, of_channel)], attributes=attributes)

K, M = D, 4
LW, LB = numbers(M * K, 6), numbers(M, 7)
emit("linear", {**x_input, "weight": ([M, K], LW), "bias": ([M], LB)}, "y",
     [sum(row[k] * LW[m * K + k] for k in range(K)) + LB[m] for row in rows for m in range(M)])

for smoothing, ignore, target in ((0.0, -100, [2, 0, 6]), (0.1, 1, [5, 1, 3]), (0.5, -100, [0, -100, 6])):
    losses = []
    for row, t in zip(rows, target):
        y = [v - mp.log(sum(map(mp.exp, row))) for v in row]
        s = mpf(smoothing)
        q = [(1 - s) * (c == t) + s / D for c in range(D)]
        losses.append(mpf(0) if t == ignore else -sum(p * v for p, v in zip(q, y)))
    emit("cross_entropy", x_input, "loss", losses, {"target": target},
         {"label_smoothing": smoothing, "ignore_index": ignore})

emit("embedding", {"weight": ([N, D], X)}, "y", rows[2] + rows[0] + rows[2] + rows[1], {"index": [2, 0, 2, 1]})

C, H, V = 2, 5, 6
IMAGE = numbers(2 * C * H * V, 8)
pixel = lambda n, c, i, j: IMAGE[((n * C + c) * H + i) * V + j] if 0 <= i < H and 0 <= j < V else None
for kernel, stride, padding in ((2, 2, 0), (3, 2, 1), (2, 1, 1)):
    out = []
    for n, c in itertools.product(range(2), range(C)):
        for i in range((H + 2 * padding - kernel) // stride + 1):
            for j in range((V + 2 * padding - kernel) // stride + 1):
                cells = [pixel(n, c, i * stride - padding + r, j * stride - padding + s) for r in range(kernel) for s in range(kernel)]
                out.append(max(cell for cell in cells if cell is not None))
    emit("max_pool2d", {"x": ([2, C, H, V], IMAGE)}, "y", out,
         attributes={"kernel": kernel, "stride": stride, "padding": padding})

O, R, S = 3, 3, 2
CW, CB = numbers(O * C * R * S, 9), numbers(O, 10)
for stride, padding in ((1, 0), (2, 1), (3, 2)):
    out = []
    for n, o in itertools.product(range(2), range(O)):
        for i in range((H + 2 * padding - R) // stride + 1):
            for j in range((V + 2 * padding - S) // stride + 1):
                total = CB[o]
                for c, r, s in itertools.product(range(C), range(R), range(S)):
                    value = pixel(n, c, i * stride - padding + r, j * stride - padding + s)
                    total += (value or 0) * CW[((o * C + c) * R + r) * S + s]
                out.append(total)
    emit("conv2d", {"x": ([2, C, H, V], IMAGE), "weight": ([O, C, R, S], CW), "bias": ([O], CB)}, "y", out,
         attributes={"stride": stride, "padding": padding})

T, E = 4, 3
Q, KEY, VALUE = (numbers(2 * T * E, salt) for salt in (11, 12, 13))
for causal in (1, 0):
    out = []
    for head, query in itertools.product(range(2), range(T)):
        at = lambda data, t: data[(head * T + t) * E:(head * T + t + 1) * E]
        keys = range(query + 1) if causal else range(T)
        weight = [mp.exp(sum(p * q for p, q in zip(at(Q, query), at(KEY, key))) / mp.sqrt(E)) for key in keys]
        out += [sum(w * at(VALUE, key)[e] for w, key in zip(weight, keys)) / sum(weight) for e in range(E)]
    emit("attention", {name: ([1, 2, T, E], data) for name, data in (("q", Q), ("k", KEY), ("v", VALUE))}, "o", out,
         attributes={"causal": causal})

print('{"source": "mpmath 1.3.0, 50 digits", "cases": [')
print(",\n".join(json.dumps(case) for case in CASES))
print("]}")
