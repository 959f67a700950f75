"""Print what separates the released code from this library, as the tables of docs/maths.md.

    python -m docs.differences

Both sides are computed here: the released code by its restatement in tests/released.py, which
reproduces its recorded outputs, on the inputs of those recordings.
"""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from diffstride import DiffStride2d, functional
from tests import released

CASES = json.loads((Path(__file__).parents[1] / "tests/golden/released.json").read_text())

QUIRKS = {
    "gain": ("`1/(H'W')` on the way out alone", "`norm`: unitary by default"),
    "even_sizes": ("sizes rounded to even numbers", "⌊N/S + 2R⌋"),
    "even_positions": ("even H: frequency −k weighted as k − 1", "as k"),
    "odd_positions": ("odd H: rows shifted by one, some land on wrong ones", "every row in place"),
    "lone_row": ("even H': row −H'/2 kept, row +H'/2 dropped", "half of each: the cosine"),
    "stride_floor": ("S itself raised to N/(N−R)", "S_min(N), for the window of this input alone"),
    "two_samples": ("N/S counts as at least 2", "as at least 1, with its gradient"),
    "float32_window": ("window in float32", "in float64"),
}


def noise(*size: int, seed: int = 0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).standard_normal((2, 3, *size)))


def restated(case: dict, quirks: released.Quirks) -> Tensor:
    x = noise(*case["size"], seed=case["seed"])
    stride = torch.tensor(case["stride"], dtype=torch.float64).expand(2)
    if case["layer"] == "SpectralPool":
        return released.spectral_pool(x, tuple(stride.tolist()), quirks=quirks)
    shared = len(case["stride"]) == 1
    return released.diff_stride(
        x, stride, case["smoothness"], shared=shared, crop=case["crop"], quirks=quirks
    )


def effects() -> list[str]:
    """One row a quirk: how much the output changes when it alone is corrected."""
    cases = [case for case in CASES if case["id"].startswith("c")]
    rows = [
        "| in the released code | here | outputs changed | by (median / largest) | other size |",
        "|---|---|---|---|---|",
    ]
    for field in fields(released.Quirks):
        changes, other_sizes = [], 0
        for case in cases:
            before = restated(case, released.RELEASED)
            after = restated(case, replace(released.RELEASED, **{field.name: False}))
            if before.shape != after.shape:
                other_sizes += 1
            elif (change := ((after - before).norm() / before.norm()).item()) > 1e-9:
                changes.append(change)
        theirs, ours = QUIRKS[field.name]
        rows.append(
            f"| {theirs} | {ours} | {len(changes)} of {len(cases)} | {spread(changes)} | "
            f"{other_sizes} |"
        )
    return rows


def spread(changes: list[float]) -> str:
    if not changes:
        return "–"
    if max(changes) < 1e-6:  # rounding: its digits are those of the machine
        return "below 1e-6"
    return f"{np.median(changes):.2g} / {max(changes):.2g}"


def stride_gradient(function, x: Tensor, *stride: float) -> str:
    s = torch.tensor(stride, dtype=torch.float64, requires_grad=True)
    function(x, s).square().sum().backward()
    return ", ".join(f"{g:.3g}" if g else "0" for g in s.grad.tolist())


def where_it_lands(function, fy: int, fx: int) -> str:
    """What becomes of a wave of amplitude 1 on 31×31 at S = 2: its amplitude, and where it is."""
    y, x = torch.meshgrid(*[torch.arange(31, dtype=torch.float64)] * 2, indexing="ij")
    image = (2 * torch.pi * (fy * y + fx * x) / 31).cos()[None, None]
    after = function(image, 2.0)[0, 0]
    spectrum = 2 * torch.fft.rfft2(after).abs() / 31**2  # relative to the gain of all waves
    row, column = divmod(int(spectrum.argmax()), spectrum.shape[1])
    if spectrum.max() < 1e-9:
        return "vanishes"
    row = row if 2 * row < len(after) else row - len(after)
    return f"{spectrum.max():.2f} at ({row}, {column})"


def written(size: int, stride: float) -> str:
    """What the released layer's variable holds after one square input, with R = 4."""
    s = torch.tensor([stride, stride], dtype=torch.float64)
    after = released.floored(s, torch.Size((size, size)), 4.0, shared=False)
    return ", ".join(f"{v:.4g}" for v in after.tolist())


def after_training(size: int, stride: float) -> str:
    """What our layer's parameter holds after one square input in training mode."""
    layer = DiffStride2d(stride)
    layer(torch.ones(1, 1, size, size))
    return ", ".join(f"{v:.4g}" for v in layer.stride.tolist())


def size_of(y: Tensor) -> str:
    return f"{y.shape[-2]}×{y.shape[-1]}"


def consequences() -> list[str]:
    """What one notices: the same call on both sides."""

    def theirs(x: Tensor, stride, smoothness: float = 4.0, **options) -> Tensor:
        stride = torch.as_tensor(stride, dtype=torch.float64).expand(2)
        return released.diff_stride(x, stride, smoothness, **options)

    def ours(x: Tensor, stride, smoothness: float = 4.0, **options) -> Tensor:
        return functional.diff_stride(x, stride, smoothness=smoothness, **options)

    one = torch.ones(1, 1, 32, 32, dtype=torch.float64)
    after_8 = float(written(8, 1.2).split(",")[0])
    rows = [
        ("a constant 1, 32×32, S = 2", *(f"{f(one, 2.0).mean():.4f}" for f in (theirs, ours))),
        (
            "size of 7×7 at S = 1",
            size_of(theirs(noise(7, 7), 1.0, crop=False)),
            size_of(ours(noise(7, 7), 1.0, crop=False)),
        ),
        (
            "size of 16×64, shared S = 1, R = 2.5",
            size_of(theirs(noise(16, 64), 1.0, 2.5, shared=True)),
            size_of(ours(noise(16, 64), 1.0, 2.5)),
        ),
        *(
            (
                f"a wave of frequency ({fy}, 3), 31×31, S = 2",
                where_it_lands(theirs, fy, 3),
                where_it_lands(lambda x, s: ours(x, s, norm="backward"), fy, 3),
            )
            for fy in (11, -11, -12)
        ),
        ("the stride after one 8×8 input, from 1.2", written(8, 1.2), after_training(8, 1.2)),
        (
            "size of 32×32 at S = 1.2 after an 8×8 input",
            size_of(theirs(noise(32, 32), after_8)),
            size_of(ours(noise(32, 32), 1.2)),
        ),
        ("the stride after one 4×4 input, from 2", written(4, 2.0), after_training(4, 2.0)),
        (
            "∂ energy / ∂S, 32×32, S = 1, R = 1",
            stride_gradient(lambda x, s: theirs(x, s, 1.0), noise(32, 32), 1.0, 1.0),
            stride_gradient(lambda x, s: ours(x, s, 1.0), noise(32, 32), 1.0, 1.0),
        ),
        (
            "∂ energy / ∂S, 16×16, S = 1000",
            stride_gradient(theirs, noise(16, 16), 1e3, 1e3),
            stride_gradient(ours, noise(16, 16), 1e3, 1e3),
        ),
    ]
    table = ["| the same call | released code | here |", "|---|---|---|"]
    return table + [f"| {call} | {a} | {b} |" for call, a, b in rows]


if __name__ == "__main__":
    print("\n".join(effects()))
    print()
    print("\n".join(consequences()))
