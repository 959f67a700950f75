"""Do strides need a learning rate of their own? Train a ResNet-18 from poor ones, and watch them.

The paper trains strides with the rate of the weights: SGD with 0.1 and momentum 0.9. Here a
ResNet-18 does so on scikit-learn's digits, shown at 32×32, from the strides (3, 2, 3) and from
(1, 3, 1) of the paper's table. For each start there is a line for every 50 steps: the loss, the
strides of each site (vertical × horizontal), and the largest gradient that a stride had since the
line before. At the end it says whether every number was finite.

At the paper's width 200 steps take a quarter of an hour on one core; `--width 0.25` takes a minute
and shows the same. `--stride-lr` gives strides another rate, to compare.
"""

import argparse
import math
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.progress import Progress
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

from diffstride import DiffStride2d, models, parameter_groups

STARTS = ((3.0, 2.0, 3.0), (1.0, 3.0, 1.0))
REPORT_EVERY = 50


def load_data() -> tuple[Tensor, Tensor]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    return F.interpolate(images, size=(32, 32), mode="bicubic"), torch.tensor(digits.target)


def train(start: Sequence[float], args: argparse.Namespace, console: Console) -> bool:
    """Train from these strides and print what becomes of them; whether all stayed finite."""
    torch.manual_seed(args.seed)
    model = models.create(
        "resnet18",
        num_classes=10,
        in_channels=1,
        strides=start,
        width=args.width,
        smoothness=args.smoothness,
    )
    layers = [module for module in model.modules() if isinstance(module, DiffStride2d)]
    groups = parameter_groups(model, lr=args.lr, weight_decay=5e-3, stride_lr=args.stride_lr)
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    images, labels = load_data()
    finite, steepest = True, 0.0
    console.print(f"from {start}")
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for step in progress.track(range(1, args.steps + 1), description="training"):
            batch = torch.randint(len(images), (args.batch,))
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            slopes = torch.cat([layer.stride.grad for layer in layers])
            steepest = max(steepest, slopes.abs().max().item())
            optimiser.step()
            finite &= math.isfinite(loss.item()) and bool(slopes.isfinite().all())
            if step % REPORT_EVERY == 0 or step == args.steps:
                strides = ", ".join(" × ".join(f"{s:.3f}" for s in x.strides) for x in layers)
                line = (
                    f"  step {step:4}  loss {loss:.3f}  steepest {steepest:.2g}  strides {strides}"
                )
                console.print(line)
                steepest = 0.0
    return finite


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--steps", type=int, default=200, help="training steps (%(default)s)")
    add("--batch", type=int, default=32, help="images a step (%(default)s)")
    add("--width", type=float, default=1.0, help="multiplies all channels (%(default)s)")
    add("--smoothness", type=float, default=4.0, help="R of the strides (%(default)s)")
    add("--lr", type=float, default=0.1, help="learning rate (%(default)s)")
    add("--stride-lr", type=float, default=None, help="that of strides (the same)")
    add("--seed", type=int, default=0, help="of weights and batches (%(default)s)")
    add("--threads", type=int, default=None, help="for torch (as many as there are cores)")
    args = parser.parse_args()
    if min(args.steps, args.batch) < 1:
        parser.error(f"--steps and --batch must be at least 1, got {args.steps} and {args.batch}")

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    console = Console(highlight=False, soft_wrap=True)
    finite = [train(start, args, console) for start in STARTS]
    print("every loss and gradient was finite" if all(finite) else "some numbers were NOT finite")


if __name__ == "__main__":
    main()
