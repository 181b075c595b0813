"""Real networks in plain NumPy, forward and backward by hand: what `fastspec.scaling` predicts.

Signals are arrays (batch, channels, height, width) or (batch, n). Every operation is written from
its definition, with none of the package's formulas.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fastspec import scaling as sc

PADDING = {"circular": "wrap", "reflect": "reflect", "replicate": "edge"}


def simulate(ops, shape, variances, *, nets=20, batch=4, seed=0, draw=None, gradient=1.0):
    """Second moments per operation in the report's order, averaged over inputs and networks.

    Rows: E[x^2] and E[Dx^2] at the operation's input, the same at its output, E[DW^2] of one input
    (NaN where there are no weights), E[Db^2]. ``variances`` are those of the layers in order.
    """
    rng = np.random.default_rng(seed)
    draw = draw or (lambda rng, size: rng.standard_normal(size))
    total = 0.0
    for _ in range(nets):
        rows = []
        values = iter(variances)
        y, back = sequence(ops, draw(rng, (batch, *shape)), values, rng, rows)
        back(np.sqrt(gradient) * rng.standard_normal(y.shape))
        total = total + np.array([row() for row in rows])
    return total / nets


def sequence(ops, x, variances, rng, rows):
    """Output and backward function of a sequence; appends to ``rows`` functions that measure."""
    backs = []
    for op in ops:
        record = {"x": x}
        rows.append(lambda record=record: measured(record))
        if isinstance(op, sc.Residual | sc.Concat):
            x, back = join(op, x, variances, rng, rows)
        else:
            x, back = STEPS[type(op)](op, x, variances, rng, record)
        record["y"] = x
        backs.append((record, back))

    def backward(dy):
        for record, back in reversed(backs):
            record["dy"] = dy
            dy = record["dx"] = back(dy)
        return dy

    return x, backward


def measured(record):
    """One row of `simulate`."""
    nan = np.array(np.nan)
    return [float(np.mean(record.get(key, nan) ** 2)) for key in ("x", "dx", "y", "dy", "dw", "db")]


def join(op, x, variances, rng, rows):
    if isinstance(op, sc.Residual):
        main, main_back = sequence(op.main, x, variances, rng, rows)
        short, short_back = sequence(op.shortcut, x, variances, rng, rows)
        return (op.alpha * short + op.beta * main,
                lambda dy: short_back(op.alpha * dy) + main_back(op.beta * dy))
    pairs = [sequence(branch, x, variances, rng, rows) for branch in op.branches]
    cuts = np.cumsum([y.shape[1] for y, _ in pairs])[:-1]

    def backward(dy):
        return sum(back(part) for (_, back), part in
                   zip(pairs, np.split(dy, cuts, axis=1), strict=True))

    return np.concatenate([y for y, _ in pairs], axis=1), backward


def linear(op, x, variances, rng, record):
    w = np.sqrt(next(variances)) * rng.standard_normal((op.n_out, op.n_in))

    def backward(dy):
        record["dw"], record["db"] = np.einsum("bo,bi->boi", dy, x), dy
        return dy @ w

    return x @ w.T, backward


def padded_places(size, padding, mode):
    """For each place of the padded axis the place of the axis it copies, -1 for a zero."""
    if mode == "zeros":
        return np.pad(np.arange(size), padding, constant_values=-1)
    return np.pad(np.arange(size), padding, mode=PADDING[mode])


def conv(op, x, variances, rng, record):
    w = np.sqrt(next(variances)) * rng.standard_normal(
        (op.groups, op.n_out // op.groups, op.n_in // op.groups, *op.kernel))
    return convolution(op, x, w, record)


def convolution(op, x, w, record):
    """With the weights w of shape (groups, n_out / groups, n_in / groups, height, width)."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw_) = op.kernel, op.stride, op.padding, op.dilation
    rows = padded_places(x.shape[2], ph, op.padding_mode)
    columns = padded_places(x.shape[3], pw, op.padding_mode)
    there = (rows >= 0)[:, None] & (columns >= 0)
    padded = x[:, :, rows[:, None], columns] * there
    view = sliding_window_view(padded, (dh * (kh - 1) + 1, dw_ * (kw - 1) + 1), axis=(2, 3))
    view = view[:, :, ::sh, ::sw, ::dh, ::dw_]
    patches = view.reshape(len(x), op.groups, -1, *view.shape[2:])
    y = np.einsum("gockl,bgcpqkl->bgopq", w, patches, optimize=True)

    def backward(dy):
        d = dy.reshape(y.shape)
        record["dw"] = np.einsum("bgopq,bgcpqkl->bgockl", d, patches, optimize=True)
        record["db"] = dy.sum(axis=(2, 3))
        parts = np.einsum("bgopq,gockl->bgcpqkl", d, w, optimize=True)
        parts = parts.reshape(len(x), op.n_in, *parts.shape[3:])
        dx_padded = np.zeros_like(padded)
        down, across = sh * np.arange(y.shape[3]), sw * np.arange(y.shape[4])
        for i in range(kh):
            for j in range(kw):
                dx_padded[:, :, (i * dh + down)[:, None], j * dw_ + across] += parts[..., i, j]
        dx = np.zeros_like(x)
        np.add.at(dx, (slice(None), slice(None), rows[:, None], columns), dx_padded * there)
        return dx

    return y.reshape(len(x), op.n_out, *y.shape[3:]), backward


def elementwise(op, x, variances, rng, record):
    if isinstance(op, sc.Activation):
        return op.activation(x), lambda dy: dy * op.activation.derivative(x)
    slope = op.slope if isinstance(op, sc.LeakyReLU) else 0.0
    factor = np.where(x > 0.0, 1.0, slope)
    return factor * x, lambda dy: factor * dy


def dropout(op, x, variances, rng, record):
    mask = (rng.random(x.shape) >= op.p) / (1.0 - op.p)
    return mask * x, lambda dy: mask * dy


def scale(op, x, variances, rng, record):
    return op.factor * x, lambda dy: op.factor * dy


def flatten(op, x, variances, rng, record):
    return x.reshape(len(x), -1), lambda dy: dy.reshape(x.shape)


def stride(op, x, variances, rng, record):
    (sh, sw) = op.stride

    def backward(dy):
        dx = np.zeros_like(x)
        dx[:, :, ::sh, ::sw] = dy
        return dx

    return x[:, :, ::sh, ::sw], backward


def upsample(op, x, variances, rng, record):
    fh, fw = op.factor

    def backward(dy):
        return dy.reshape(*x.shape[:2], x.shape[2], fh, x.shape[3], fw).sum(axis=(3, 5))

    return x.repeat(fh, axis=2).repeat(fw, axis=3), backward


def pool(op, x, variances, rng, record):
    """Average and maximum: each window is a list of places, padding is zero or never wins."""
    (kh, kw), (sh, sw), (ph, pw) = op.kernel, op.stride, op.padding
    average = isinstance(op, sc.AvgPool2d)
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)),
                    constant_values=0.0 if average else -np.inf)
    view = sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::sh, ::sw]
    flat = view.reshape(*view.shape[:4], kh * kw)
    winner = flat.argmax(axis=-1)

    def backward(dy):
        dx = np.zeros_like(padded)
        down, across = sh * np.arange(dy.shape[2]), sw * np.arange(dy.shape[3])
        for cell in range(kh * kw):
            i, j = divmod(cell, kw)
            part = dy / (kh * kw) if average else dy * (winner == cell)
            dx[:, :, (i + down)[:, None], j + across] += part
        return dx[:, :, ph:ph + x.shape[2], pw:pw + x.shape[3]]

    return (flat.mean(axis=-1) if average else flat.max(axis=-1)), backward


def layer_norm(op, x, variances, rng, record):
    axes = tuple(range(1, x.ndim))
    y = x - x.mean(axis=axes, keepdims=True)
    return normalised(y, axes)


def batch_norm(op, x, variances, rng, record):
    axes = (0, *range(2, x.ndim))
    y = x - x.mean(axis=axes, keepdims=True)
    return normalised(y, axes)


def normalised(centred, axes):
    size = np.sqrt(np.mean(centred**2, axis=axes, keepdims=True))
    y = centred / size

    def backward(dy):
        along = y * np.mean(y * dy, axis=axes, keepdims=True)
        return (dy - dy.mean(axis=axes, keepdims=True) - along) / size

    return y, backward


STEPS = {
    sc.Linear: linear, sc.Conv2d: conv, sc.ReLU: elementwise, sc.LeakyReLU: elementwise,
    sc.Activation: elementwise, sc.Dropout: dropout, sc.Scale: scale, sc.Flatten: flatten,
    sc.Stride: stride, sc.Upsample: upsample, sc.AvgPool2d: pool, sc.MaxPool2d: pool,
    sc.LayerNorm: layer_norm, sc.BatchNorm: batch_norm,
}
