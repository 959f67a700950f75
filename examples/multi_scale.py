"""Two branches read one texture at two scales, and end at different strides.

Textures of 32×32 pixels have fine waves, 5 cycles per image, and slow ones, 1 cycle. Each runs
along rows or along columns, which makes four classes. The first layer of a small network is
`MultiScale2d` with two branches: each is a convolution with a stride of its own, and what both make
is mixed. The regulariser of the paper pushes both strides up.

The first branch sets the size of the maps. It stops where its window lets pass half of the fine
waves, at a stride of 2.9. The second has nothing to lose as long as the first keeps the detail, and
goes further. `--fine 2` leaves no fine waves: then strides that begin equal stay so.

From equal strides it is chance which branch keeps the detail: with `--seeds 10`, it is the second
in 3 of 10, whose detail the size of the first then cuts. From strides that differ it never is.

What this does not show is that two branches are better than one: the last rows have one alone, and
there too every texture is recognised, for less.

Three beginnings are trained with each seed, and one branch, five seconds each. What to look at, in
the table: the strides of both branches at the end, and how much of each is in the mix.
"""

import argparse

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import DiffStrideConv2d, MultiScale2d, cost, parameter_groups, stride_penalty

SIZE = 32
SLOW = 1
BEGINNINGS = ((2.0, 2.0), (1.5, 3.0), (2.0, 2.5), (2.0,))


def textures(number: int, fine: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Textures with waves of two scales, and which of four classes each is."""
    across = torch.randint(2, (2, number), generator=generator).bool()
    phases = 2 * torch.pi * torch.rand(2, number, 1, generator=generator)
    position = 2 * torch.pi * torch.arange(SIZE) / SIZE
    cycles = torch.tensor([fine, SLOW])[:, None, None]
    waves = torch.cos(cycles * position + phases)[..., None].expand(-1, -1, -1, SIZE)
    images = torch.where(across[..., None, None], waves, waves.mT).sum(0)
    images = images + 0.5 * torch.randn(number, SIZE, SIZE, generator=generator)
    return images[:, None], 2 * across[0].long() + across[1].long()


def network(strides: tuple[float, ...], width: int = 8) -> nn.Sequential:
    """A small network that begins with as many branches as there are strides, one or two."""
    options = {"padding": 2, "norm": "forward", "shared": True}
    if len(strides) == 2:
        spread = strides[1] / strides[0]
        first: nn.Module = MultiScale2d(1, width, 5, 2, strides[0], spread=spread, **options)
    else:
        first = DiffStrideConv2d(1, width, 5, strides[0], **options)
    return nn.Sequential(
        first,
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 5, padding=2),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 4),
    )


def train(model: nn.Module, args: argparse.Namespace, generator: torch.Generator) -> float:
    """Train a network, and return its accuracy on textures that no seed was trained on."""
    groups = parameter_groups(model, lr=1e-2, weight_decay=0.01, stride_lr=0.03)
    rates = [group["lr"] for group in groups]
    optimiser = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=args.steps)
    for _ in range(args.steps):
        images, labels = textures(64, args.fine, generator)
        loss = F.cross_entropy(model(images), labels) + args.penalty * stride_penalty(model)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    images, labels = textures(1000, args.fine, torch.Generator().manual_seed(2**31))
    with torch.no_grad():
        return (model.eval()(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--seeds", type=int, default=3, help="how many of each beginning (%(default)s)")
    add("--steps", type=int, default=300, help="training steps of each (%(default)s)")
    add("--penalty", type=float, default=0.3, help="weight of the regulariser (%(default)s)")
    add("--fine", type=int, default=5, help="cycles of the fine waves (%(default)s)")
    add("--quick", action="store_true", help="one seed, from equal strides")
    args = parser.parse_args()
    if min(args.seeds, args.steps) < 1:
        parser.error(f"--seeds and --steps must be at least 1, got {args.seeds} and {args.steps}")
    if not SLOW < args.fine < SIZE / 2:
        parser.error(f"--fine must be from {SLOW + 1} to {SIZE // 2 - 1}, got {args.fine}")
    beginnings = BEGINNINGS[:1] if args.quick else BEGINNINGS
    seeds = range(1 if args.quick else args.seeds)
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores

    table = Table("begin", "seed", "first branch", "second branch", "mix", "accuracy", "MACs")
    together = apart = 0
    for beginning in beginnings:
        for seed in seeds:
            torch.manual_seed(seed)
            model = network(beginning)
            correct = train(model, args, torch.Generator().manual_seed(seed))
            branches = getattr(model[0], "branches", [model[0]])
            strides = [branch.strides[0] for branch in branches]
            words = [f"{stride:.2f}" for stride in strides]
            if len(strides) == 2:
                together += 1
                apart += strides[1] > 1.1 * strides[0]
                words.append(" : ".join(f"{w:.2f}" for w in model[0].weights.tolist()))
            words += ["–"] * (3 - len(words))
            numbers = f"{correct:.1%}", f"{cost(model, (1, SIZE, SIZE)).macs:,}"
            start = " and ".join(f"{stride:g}" for stride in beginning)
            table.add_row(start, str(seed), *words, *numbers)
    Console(width=100).print(table)
    print(f"the second stride is larger by a tenth at least in {apart} of {together}")


if __name__ == "__main__":
    main()
