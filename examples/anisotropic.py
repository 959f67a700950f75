"""Strides grow along the axis that has no detail: a case whose answer is known.

Volumes of 16×16×16 samples have lost their detail along one axis, as scans with thick slices have:
three quarters of its frequencies are taken away, and noise with them. Two small networks learn from
them, each with two layers that downsample all three axes by 1.6 at first:

- a classifier says along which diagonal of the two other axes neighbours are alike, which shows in
  their detail alone;
- a U-Net, converted, takes noise away from waves, and what it puts out has no more detail than what
  its strides let pass.

What a network costs is held after every step (`Budget`), so that a stride can only become smaller
where another one grows. Nothing is lost along the axis without detail, and much along the others:
so there strides must grow. It is axis 0 for seed 0, 1 for seed 1 and 2 for seed 2, because a layer
that only liked one axis better would be found out by the others.

Strides follow their gradients as these are (SGD). `--per-cent` shows what `StrideOptimizer` makes
of it, which moves each stride by a part of itself whatever the size of its gradient: that of an
axis without detail is nearly 0, and chance then counts as much as need elsewhere.

It takes a few seconds for each seed. What to look at: the strides at the end, and in the figure,
runs/anisotropic.png: how they drift apart while they are learned.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import Budget, DiffStride3d, StrideOptimizer, convert, cost, parameter_groups
from diffstride.functional import spectral_pool, spectral_resize

SIZE, FACTOR, FIRST = 16, 4, 1.6
SAME = (1, 1, SIZE, SIZE, SIZE)


def without_detail(x: Tensor, axis: int) -> Tensor:
    """The same with no frequency above SIZE / (2 · FACTOR) along one axis."""
    size = [SIZE] * 3
    size[axis] //= FACTOR
    small = spectral_pool(x, output_size=tuple(size), norm="forward")
    return spectral_resize(small, (SIZE,) * 3, norm="forward")


def diagonals(number: int, axis: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noise that is alike along one of two diagonals of the axes but ``axis``, and along which."""
    labels = torch.randint(2, (number,), generator=generator)
    noise = torch.randn(number, SIZE, SIZE, SIZE, generator=generator)
    one, other = noise.roll((1, 1), (2, 3)), noise.roll((1, -1), (2, 3))
    volumes = noise + 0.8 * torch.where(labels[:, None, None, None] == 1, one, other)
    return without_detail(volumes.movedim(1, axis + 1)[:, None].contiguous(), axis), labels


def waves(number: int, axis: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sums of six waves with noise, and without; along ``axis`` all are slow."""
    frequencies = torch.randint(-7, 8, (number, 6, 3), generator=generator)
    frequencies[..., axis] = torch.randint(-1, 2, (number, 6), generator=generator)
    places = torch.stack(torch.meshgrid(*[torch.arange(SIZE)] * 3, indexing="ij")).flatten(1)
    angles = 2 * torch.pi / SIZE * (frequencies.float() @ places.float())
    phases = 2 * torch.pi * torch.rand(number, 6, 1, generator=generator)
    clean = (angles + phases).cos().sum(1).reshape(number, *SAME[1:]) / 3**0.5
    noisy = clean + torch.randn(clean.shape, generator=generator)
    return without_detail(noisy, axis), clean


class Classifier(nn.Sequential):
    """Two convolutions that downsample, and only then what is not linear."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv3d(1, 8, 3, padding=1), self.down(), nn.BatchNorm3d(8)),
            *(nn.Conv3d(8, 16, 3, padding=1), self.down(), nn.BatchNorm3d(16), nn.ReLU()),
            *(nn.Conv3d(16, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU()),
            *(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 2)),
        )

    def down(self) -> DiffStride3d:
        return DiffStride3d(FIRST, smoothness=1.0, convention="tight", norm="forward")


class UNet(nn.Module):
    """Down by strided convolutions, up by transposed ones, with a skip between the two."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = self.step(nn.Conv3d, 1, 8), self.step(nn.Conv3d, 8, 16)
        self.deepest = nn.Sequential(nn.Conv3d(16, 16, 3, padding=1), nn.ReLU())
        self.up2 = nn.ConvTranspose3d(16, 8, 2, stride=2)
        self.beside = nn.Sequential(nn.Conv3d(16, 16, 3, padding=1), nn.ReLU())
        self.up1 = nn.ConvTranspose3d(16, 8, 2, stride=2)
        self.last = nn.Conv3d(8, 1, 3, padding=1)

    def step(self, kind: type[nn.Conv3d], channels: int, outputs: int) -> nn.Module:
        convolution = kind(channels, outputs, 3, stride=2, padding=1)
        return nn.Sequential(convolution, nn.BatchNorm3d(outputs), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down1(x)
        x = self.up2(self.deepest(self.down2(skip)))
        x = self.up1(self.beside(torch.cat([x, skip], 1))).relu()
        return self.last(x)


def network(task: str) -> nn.Module:
    if task == "classifier":
        return Classifier()
    converted, _ = convert(UNet(), torch.rand(2, *SAME[1:]), stride=FIRST)
    return converted


def train(task: str, axis: int, seed: int, args: argparse.Namespace) -> Tensor:
    """The strides before and after every step, for each layer."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = network(task)
    layers = [layer for layer in model.modules() if isinstance(layer, DiffStride3d)]
    budget = Budget(model, SAME[1:], macs=cost(model, SAME[1:]).macs)
    weights = torch.optim.AdamW(
        parameter_groups(model, lr=5e-3, weight_decay=0.01, with_strides=False)
    )
    strides: torch.optim.Optimizer
    if args.per_cent:
        strides = StrideOptimizer(model, 0.02, steps=args.steps)
    else:  # as large as they are, gradients say how much more one axis needs than another
        rate = 5.0 if task == "classifier" else 1.0
        strides = torch.optim.SGD([layer.stride for layer in layers], lr=rate)
    history = [[layer.strides for layer in layers]]
    for _ in range(args.steps):
        if task == "classifier":
            volumes, labels = diagonals(16, axis, generator)
            loss = F.cross_entropy(model(volumes), labels)
        else:
            noisy, clean = waves(8, axis, generator)
            loss = F.mse_loss(model(noisy), clean)
        model.zero_grad()
        loss.backward()
        weights.step()
        strides.step()
        budget.hold()
        history.append([layer.strides for layer in layers])
    return torch.tensor(history)


def line(task: str, seed: int, axis: int, strides: Tensor) -> str:
    """What all strides down to each site make together."""
    products = [" × ".join(f"{s:.2f}" for s in site) for site in strides.cumprod(0).tolist()]
    return f"{task}, seed {seed}, no detail along axis {axis}: " + ", then ".join(products)


def draw(histories: dict[tuple[str, int, int], Tensor]) -> Figure:
    tasks = list(dict.fromkeys(task for task, _, _ in histories))
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True)
    for task, panel in zip(tasks, panels, strict=True):
        for (name, _, axis), history in histories.items():
            if name != task:
                continue
            for i, products in enumerate(history.prod(1).T):
                colour, role = ("#08519c", "no detail") if i == axis else ("#a63603", "detail")
                panel.plot(products, color=colour, alpha=0.8, label=role)
        roles = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
        panel.legend(roles.values(), roles.keys(), frameon=False)
        panel.set(title=task, xlabel="training step", ylabel="all strides of an axis, multiplied")
    return figure


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--seed", type=int, nargs="+", default=[0, 1, 2], help="one or more (%(default)s)")
    add("--axis", type=int, choices=(0, 1, 2), help="without detail (the seed, modulo 3)")
    add("--steps", type=int, default=100, help="training steps of each (%(default)s)")
    add("--per-cent", action="store_true", help="move strides by StrideOptimizer, not by SGD")
    add("--output", type=Path, default=Path("runs/anisotropic.png"), help="figure (%(default)s)")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps must be at least 1, got {args.steps}")
    args.output.parent.mkdir(parents=True, exist_ok=True)  # fails now, not after training

    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    histories: dict[tuple[str, int, int], Tensor] = {}
    for task in ("classifier", "U-Net"):
        for seed in args.seed:
            axis = seed % 3 if args.axis is None else args.axis
            histories[task, seed, axis] = history = train(task, axis, seed, args)
            print(line(task, seed, axis, history[-1]), flush=True)
    draw(histories).savefig(args.output, dpi=150)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
