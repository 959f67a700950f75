"""Strides find out along which axis the detail is.

Textures of 32×32 pixels come in four classes, told apart by how fine the waves along one axis are:
8, 10, 12 or 14 cycles per image. Along the other axis there are only slow waves, which say nothing
of the class. A small ResNet-18 learns the classes and six strides, one per axis at each of three
sites, all 2 at first; the regulariser of the paper pushes every stride up, whatever its axis.

Along the smooth axis it costs nothing to obey, along the other it costs detail. So the product of
a network's strides ends larger along the smooth axis, and every texture is still recognised.
Without the regulariser (`--penalty 0`) there is no such order: nothing tells strides that what they
keep is not needed. With more of it (`--penalty 1`) the products come closer again, and textures are
recognised all the same; perhaps the first stage, which is at full size, then turns fine waves into
slow ones, but this is not shown here.

It takes half a minute a seed. What to look at, in the lines and then in the figure,
runs/textures.png: the two products drift apart, along the axis that `--axis` says.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import DiffStride2d, models, parameter_groups, stride_penalty

SIZE = 32
CYCLES = (8, 10, 12, 14)
AXES = ("vertical", "horizontal")


def textures(number: int, detail: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Textures whose class is a wave along the axis ``detail``, and their classes."""
    labels = torch.randint(len(CYCLES), (number,), generator=generator)
    position = 2 * torch.pi * torch.arange(SIZE) / SIZE
    phase = 2 * torch.pi * torch.rand(number, 1, generator=generator)
    fine = torch.cos(torch.tensor(CYCLES)[labels][:, None] * position + phase)
    amplitude = torch.randn(2, number, 2, generator=generator)
    angles = torch.tensor([1, 2])[:, None] * position
    slow = amplitude[0] @ angles.cos() + amplitude[1] @ angles.sin()
    images = fine[:, :, None] * (1 + 0.3 * slow[:, None, :]) + 0.5 * slow[:, None, :]
    images = images + 0.5 * torch.randn(number, SIZE, SIZE, generator=generator)
    if detail == 1:
        images = images.mT
    return images[:, None].contiguous(), labels


def train(args: argparse.Namespace, seed: int, console: Console) -> tuple[float, Tensor]:
    """The accuracy on new textures, and the strides before and after every step, per layer."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    detail = AXES.index(args.axis)
    # Neither axis must be special: the paper's convention keeps one frequency more on the last.
    model = models.create(
        "resnet18",
        num_classes=len(CYCLES),
        in_channels=1,
        width=1 / 16,
        smoothness=2.0,
        convention="symmetric",
    )
    layers = [module for module in model.modules() if isinstance(module, DiffStride2d)]
    groups = parameter_groups(model, lr=5e-3, weight_decay=0.01, stride_lr=0.03)
    rates = [group["lr"] for group in groups]
    optimiser = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=args.steps)
    history = [[layer.strides for layer in layers]]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for _ in progress.track(range(args.steps), description=f"seed {seed}"):
            images, labels = textures(64, detail, generator)
            loss = F.cross_entropy(model(images), labels) + args.penalty * stride_penalty(model)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            history.append([layer.strides for layer in layers])
    return accuracy(model, detail), torch.tensor(history)


def accuracy(model: nn.Module, detail: int) -> float:
    """On textures that no seed was trained on."""
    images, labels = textures(1000, detail, torch.Generator().manual_seed(2**31))
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def line(seed: int, correct: float, strides: Tensor) -> str:
    sites = ", ".join(f"{v:.2f} × {h:.2f}" for v, h in strides.tolist())
    vertical, horizontal = strides.prod(0).tolist()
    return (
        f"seed {seed}  accuracy {correct:.1%}  strides {sites}  "
        f"in all {vertical:.1f} × {horizontal:.1f}"
    )


def draw(histories: list[Tensor], detail: int) -> Figure:
    figure = Figure(figsize=(13, 4), layout="constrained")
    examples, trajectories, final = figure.subfigures(1, 3, width_ratios=[1, 1.4, 1.2])
    images, labels = textures(100, detail, torch.Generator().manual_seed(0))
    panels = examples.subplots(2, 2)
    for label, panel in enumerate(panels.flat):
        panel.imshow(images[labels == label][0, 0], cmap="gray")
        panel.set(title=f"{CYCLES[label]} cycles", xticks=[], yticks=[])
    colours = {AXES[detail]: "#a63603", AXES[1 - detail]: "#08519c"}
    roles = {AXES[detail]: "fine", AXES[1 - detail]: "smooth"}
    panel = trajectories.subplots()
    bars = final.subplots()
    for i, history in enumerate(histories):
        for axis, name in enumerate(AXES):
            label = f"{name}, {roles[name]}"
            once = label if i == 0 else None
            panel.plot(history.prod(1)[:, axis], color=colours[name], label=once, alpha=0.8)
            place = torch.arange(history.shape[1]) + 0.1 * i + (0.35 if axis else 0)
            bars.bar(place, history[-1, :, axis], 0.09, color=colours[name], label=once)
    panel.set(title="All strides of an axis, multiplied", xlabel="training step", ylabel="product")
    bars.set(title="Strides at the end, a bar a seed", xticks=[0.3, 1.3, 2.3], ylim=(1, None))
    bars.set_xticklabels(["site 1", "site 2", "site 3"])
    panel.legend(frameon=False)
    bars.legend(frameon=False)
    return figure


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--axis", choices=AXES, default="vertical", help="where the detail is (%(default)s)")
    add("--seeds", type=int, default=3, help="how many networks are trained (%(default)s)")
    add("--steps", type=int, default=300, help="training steps of each (%(default)s)")
    add("--penalty", type=float, default=0.3, help="weight of the regulariser (%(default)s)")
    add("--output", type=Path, default=Path("runs/textures.png"), help="the figure (%(default)s)")
    args = parser.parse_args()
    if min(args.seeds, args.steps) < 1:
        parser.error(f"--seeds and --steps must be at least 1, got {args.seeds} and {args.steps}")
    if not args.penalty >= 0:
        parser.error(f"--penalty must be at least 0, got {args.penalty}")
    args.output.parent.mkdir(parents=True, exist_ok=True)  # fails now, not after training

    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    console = Console(highlight=False, soft_wrap=True)
    detail = AXES.index(args.axis)
    histories = []
    for seed in range(args.seeds):
        correct, history = train(args, seed, console)
        console.print(line(seed, correct, history[-1]))
        histories.append(history)
    products = torch.stack([history[-1].prod(0) for history in histories])
    larger = int((products[:, 1 - detail] > products[:, detail]).sum())
    smooth = AXES[1 - detail]
    print(f"the {smooth} axis, which is smooth, has the larger stride in {larger} of {args.seeds}")
    draw(histories, detail).savefig(args.output, dpi=150)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
