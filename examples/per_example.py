"""A stride for each image: blurred digits are made smaller than sharp ones, and cost less.

The data are scikit-learn's 1797 digits, 16×16 pixels large at a random place of 32×32. Of each
there are two: a sharp one, and a blurred one without the frequencies that 7×7 samples can't hold. A
small network reads both. In front of it is `AdaptiveStride2d`, whose strides follow from each
image:

1. the network learns with nearly the smallest stride, 2.75, for all;
2. the budget shrinks, then stays, and strides are learned: some must grow. Those of blurred images
   can for a while without any change of what comes out, those of sharp ones can't;
3. strides stay, and the network learns with a size of its own for each image, as it is used later.

Beside it, one stride for all: the same network and as many epochs, at 12×12 samples, the most that
any image may have, and at the size that has about as many samples as the budget.

It takes about a minute of one core for each seed. What to look at: the strides of both kinds, and
accuracies beside costs; docs/maths.md has a table of three seeds. The figure,
runs/per_example.png, shows both for all seeds.
"""

import argparse
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import AdaptiveStride2d, SpectralPool2d, cost
from diffstride.functional import spectral_pool, spectral_resize

SIZE, DIGIT, BLURRED = 32, 16, 7
SMALLEST, FIRST, LARGEST = 32 / 12, 2.75, 6.0
KINDS = ("sharp", "blurred")


def load_data() -> tuple[dict[str, Tensor], Tensor, Tensor, Tensor]:
    """Images of both kinds, labels, and which are for training and for testing."""
    digits = load_digits()
    small = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    small = spectral_resize(small, (DIGIT, DIGIT), norm="forward", basis="dct")
    sharp = torch.zeros(len(small), 1, SIZE, SIZE)
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(SIZE - DIGIT + 1, (len(small), 2), generator=generator)
    for image, digit, (top, left) in zip(sharp, small, places.tolist(), strict=True):
        image[:, top : top + DIGIT, left : left + DIGIT] = digit
    blurred = spectral_pool(sharp, output_size=(BLURRED, BLURRED), norm="forward")
    blurred = spectral_resize(blurred, (SIZE, SIZE), norm="forward")
    numbers = torch.arange(len(small))
    # One split for all seeds, so that their accuracies can be compared.
    split = train_test_split(numbers, test_size=0.25, stratify=digits.target, random_state=0)
    return {"sharp": sharp, "blurred": blurred}, torch.tensor(digits.target), *split


def network(width: int = 8) -> nn.Sequential:
    """What reads an image of any size. It mixes no examples, whose sizes may differ."""

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.ReLU()]

    return nn.Sequential(
        *convolution(1, width),
        *convolution(width, 2 * width),
        *convolution(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


class Task:
    """The data, and what is asked of a model."""

    def __init__(self) -> None:
        self.images, self.labels, self.training, self.testing = load_data()

    def epoch(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        model.train()
        images = torch.cat([self.images[kind][self.training] for kind in KINDS])
        labels = self.labels[self.training].repeat(2)
        for some in torch.randperm(len(images), generator=generator).split(64):
            loss = F.cross_entropy(model(images[some]), labels[some])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    @torch.no_grad()
    def accuracy(self, model: nn.Module) -> float:
        model.eval()
        labels = self.labels[self.testing]
        right = [model(x[self.testing]).argmax(1) == labels for x in self.images.values()]
        return torch.cat(right).float().mean().item()


def rate(epoch: int, epochs: int) -> float:
    return 1e-2 * min(1.0, 1.5 * (1 - epoch / epochs))


@torch.no_grad()
def strides(model: AdaptiveStride2d, task: Task) -> dict[str, Tensor]:
    model.eval()
    return {kind: model.strides_of(x[task.testing])[:, 0] for kind, x in task.images.items()}


def train_adaptive(
    task: Task, seed: int, epochs: list[int], budget: float
) -> tuple[nn.Module, Tensor]:
    """Return the model, and the mean strides of both kinds after every epoch."""
    torch.manual_seed(seed)
    first = 1 / FIRST**2
    options = {"min_stride": SMALLEST, "max_stride": LARGEST, "shared": True, "budget": first}
    model = AdaptiveStride2d(1, network(), stride=FIRST, **options)
    groups = [{"params": model.rest.parameters()}, {"params": model.predictor.parameters()}]
    optimiser = torch.optim.AdamW(groups, lr=1e-2)
    generator, history = torch.Generator().manual_seed(seed), []
    starts, ends = epochs[0], epochs[0] + epochs[1]
    for epoch in range(sum(epochs)):
        optimiser.param_groups[0]["lr"] = rate(epoch, sum(epochs))
        model.predictor.requires_grad_(starts <= epoch < ends)
        model.in_groups = True if epoch >= ends else None
        done = min(1.0, max(0.0, 2 * (epoch - starts) / epochs[1]))
        model.budget = first + done * (budget - first)
        task.epoch(model, optimiser, generator)
        history.append([found.mean() for found in strides(model, task).values()])
    return model, torch.tensor(history)


def train_one(task: Task, seed: int, epochs: int, size: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(SpectralPool2d(output_size=size, norm="forward"), network())
    optimiser = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = rate(epoch, epochs)
        task.epoch(model, optimiser, generator)
    return model


def mean_macs(model: AdaptiveStride2d, task: Task) -> float:
    """Multiply-accumulates of a test image, in the mean: its own size, and finding its stride."""
    found, macs = torch.cat(list(strides(model, task).values())), []
    known: dict[tuple[int, ...], int] = {}
    for stride in found.tolist():
        made = model.rule.size_after((SIZE, SIZE), (stride, stride))
        if made not in known:
            alone = nn.Sequential(SpectralPool2d(output_size=made), model.rest)
            known[made] = cost(alone, (1, SIZE, SIZE)).macs
        macs.append(known[made])
    return sum(macs) / len(macs) + cost(model.predictor, (1, SIZE, SIZE)).macs


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the weights (%(default)s)")
    add("--epochs", type=int, nargs=3, default=[14, 20, 20], help="of each part (%(default)s)")
    add("--budget", type=float, default=0.1, help="share of samples (%(default)s)")
    add("--alone", action="store_true", help="without one stride for all beside it")
    add("--output", type=Path, default=Path("runs/per_example.png"), help="figure (%(default)s)")
    args = parser.parse_args()
    if min(args.epochs) < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}")
    args.output.parent.mkdir(parents=True, exist_ok=True)  # fails now, not after training
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores

    task, points = Task(), []
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    near = round(SIZE * args.budget**0.5)
    for seed in args.seeds:
        model, history = train_adaptive(task, seed, args.epochs, args.budget)
        macs, accuracy = mean_macs(model, task), task.accuracy(model)
        ends = ", ".join(f"{kind} {s:.2f}" for kind, s in zip(KINDS, history[-1], strict=True))
        print(
            f"seed {seed}  its own  {accuracy:6.1%}  {macs:9,.0f} MACs  strides: {ends}", flush=True
        )
        points.append(("its own", macs, accuracy))
        for kind, curve, colour in zip(KINDS, history.T, ("#a63603", "#08519c"), strict=True):
            left.plot(curve, color=colour, label=kind if seed == args.seeds[0] else None)
        for size in () if args.alone else (12, near):
            one = train_one(task, seed, sum(args.epochs), size)
            macs, accuracy = cost(one, (1, SIZE, SIZE)).macs, task.accuracy(one)
            name = f"{size}×{size}"
            print(f"seed {seed}  {name:7}  {accuracy:6.1%}  {macs:9,.0f} MACs", flush=True)
            points.append((name, macs, accuracy))
    means = {}
    for name in dict.fromkeys(name for name, _, _ in points):
        mine = torch.tensor([point[1:] for point in points if point[0] == name])
        means[name] = mine.mean(0)
        right.plot(*mine.T, "o", label=name)
    if not args.alone:
        fewer = 1 - means["its own"][0] / means["12×12"][0]
        more = 100 * (means["its own"][1] - means["12×12"][1])
        print(f"a stride of its own: {fewer:.0%} fewer MACs than 12×12, {more:+.1f} points")
    left.set(title="mean stride of test images", xlabel="epoch", ylabel="stride S")
    right.set(title="one point a seed", xlabel="MACs of an image", ylabel="accuracy")
    for ax in (left, right):
        ax.legend(frameon=False)
        ax.grid(alpha=0.3)
    figure.savefig(args.output, dpi=150)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
