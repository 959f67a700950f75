"""Train a small network with two learnable strides on handwritten digits, and draw what it learned.

The data are scikit-learn's 1797 digits, which come with the package. They have 8×8 pixels and are
shown at 32×32, so their true resolution is known: 8 samples can't hold more than 4 cycles per
image. Each of two DiffStride2d layers starts with a stride of 3 on both axes, and its strides are
trained with the weights.

It takes about half a minute and ends above 97 % on digits it was not trained on. Ctrl-C stops
earlier and draws what was learned by then. What to look at, in the line printed for each epoch
and then in the figure, runs/digits.png:

- strides leave their initial value, each axis of each layer by itself, and are no whole numbers;
- sizes follow: an axis of N samples leaves its layer with ⌊N/S + 2R⌋, where R is the smoothness;
- windows, through which strides act: the larger the stride, the fewer frequencies pass. The first
  layer passes more than those 4 cycles (a ReLU before it adds higher ones), the second hardly more.
"""

import argparse
import copy
from collections.abc import Iterable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from diffstride import DiffStride2d, parameter_groups
from diffstride.functional import window

SIZE = (32, 32)
BAND_LIMIT = 4  # cycles per image: half of the 8 samples that the digits really have


def load_data() -> list[Tensor]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = F.interpolate(images, size=SIZE, mode="bicubic")
    labels = torch.tensor(digits.target)
    # One split for all seeds, so that their accuracies can be compared.
    return train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)


def build_model(pools: list[DiffStride2d]) -> nn.Sequential:
    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        # An epoch has 21 steps: with the usual momentum of 0.1, averages lag behind the weights.
        return [layer, nn.BatchNorm2d(outputs, momentum=0.3), nn.ReLU()]

    return nn.Sequential(
        *convolution(1, 16),
        pools[0],
        *convolution(16, 32),
        pools[1],
        *convolution(32, 64),
        nn.AdaptiveAvgPool2d(1),  # what comes in changes its size with the strides
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def train(model: nn.Module, pools: list[DiffStride2d], epochs: int, console: Console) -> Tensor:
    """Train, and return the strides before the first and after every step: (time, layer, axis)."""
    train_images, test_images, train_labels, test_labels = load_data()
    dataset = TensorDataset(train_images, train_labels)
    loader = DataLoader(dataset, batch_size=64, shuffle=True, drop_last=True)
    steps = epochs * len(loader)
    # A stride has further to go than a weight: it gets a larger learning rate.
    groups = parameter_groups(model, lr=3e-3, weight_decay=0.01, stride_lr=0.02)
    rates = [group["lr"] for group in groups]  # a single rate would replace the strides' own
    optimiser = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)

    history = [[pool.strides for pool in pools]]
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=steps)
        try:
            for epoch in range(1, epochs + 1):
                model.train()
                for images, labels in loader:
                    loss = F.cross_entropy(model(images), labels)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    history.append([pool.strides for pool in pools])
                    progress.advance(task)
                model.eval()
                with torch.no_grad():
                    accuracy = (model(test_images).argmax(1) == test_labels).float().mean()
                strides = ", ".join(times(pool.strides, ".2f") for pool in pools)
                console.print(f"epoch {epoch:2}  accuracy {accuracy:6.1%}  strides {strides}")
        except KeyboardInterrupt:
            console.print("interrupted: this is what was learned by now")
    return torch.tensor(history)


def times(numbers: Iterable[float], spec: str = "") -> str:
    return " × ".join(format(number, spec) for number in numbers)


def layer_sizes(pools: list[DiffStride2d]) -> list[tuple[int, ...]]:
    """The size each layer is given, then the one the last returns; convolutions keep the size."""
    sizes = [SIZE]
    for pool in pools:
        sizes.append(pool.output_size(sizes[-1]))
    return sizes


def summarise(initial: list[DiffStride2d], learned: list[DiffStride2d]) -> Table:
    table = Table("layer", "initial strides", "learned strides", "size in → size out")
    sizes = [times(size) for size in layer_sizes(learned)]
    for i, layers in enumerate(zip(initial, learned, strict=True)):
        strides = [times(layer.strides, ".2f") for layer in layers]
        table.add_row(str(i + 1), *strides, f"{sizes[i]} → {sizes[i + 1]}")
    return table


def draw(history: Tensor, initial: list[DiffStride2d], learned: list[DiffStride2d]) -> Figure:
    figure = Figure(figsize=(14, 6), layout="constrained")
    figure.suptitle(
        "Strides learned on 8×8 digits shown at 32×32, and the windows they make "
        f"(dotted: the {BAND_LIMIT} cycles that 8 samples can hold)"
    )
    axes = figure.subplot_mosaic([["strides", "00", "10"], ["strides", "01", "11"]])
    axes["strides"].set(title="Strides while training", xlabel="training step", ylabel="stride S")
    colours = [["#08519c", "#6baed6"], ["#a63603", "#fd8d3c"]]  # a hue per layer
    for i, layer in enumerate(learned):
        for axis, name in enumerate(["vertical", "horizontal"]):
            colour, label = colours[i][axis], f"layer {i + 1}, {name}"
            axes["strides"].plot(history[:, i, axis], color=colour, label=label)
            panel = axes[f"{i}{axis}"]
            panel.axvline(BAND_LIMIT, color="black", linestyle=":")
            for pools, style, when in [(initial, "--", "before"), (learned, "-", "after")]:
                n, stride = layer_sizes(pools)[i][axis], pools[i].strides[axis]
                # By the paper's convention the last axis keeps one frequency more: offset 1.
                gain = window(n, stride, smoothness=layer.smoothness, offset=axis, crop=False)
                label = f"{when}: S = {stride:.2f}, N = {n}"
                panel.plot(gain, style, color=colour, marker=".", label=label)
            panel.set_title(f"Window of layer {i + 1}, {name}", pad=22)
            panel.set(xlabel="frequency (cycles per image)", ylabel="gain", xlim=(0, 16))
            # Above the axes: a window may be anywhere in them.
            panel.legend(loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=2, frameon=False)
    axes["strides"].legend()
    for panel in axes.values():
        panel.grid(alpha=0.3)
    return figure


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--epochs", type=int, default=20, help="passes over the training set (%(default)s)")
    add("--seed", type=int, default=0, help="of the weights and the order of images (%(default)s)")
    add("--output", type=Path, default=Path("runs/digits.png"), help="the figure (%(default)s)")
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}")

    args.output.parent.mkdir(parents=True, exist_ok=True)  # fails now, not after training

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    console = Console(highlight=False)
    pools = [DiffStride2d(3.0, smoothness=2.0) for _ in range(2)]
    initial = copy.deepcopy(pools)
    history = train(build_model(pools), pools, args.epochs, console)
    console.print(summarise(initial, pools))
    draw(history, initial, pools).savefig(args.output, dpi=150)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
