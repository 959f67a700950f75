"""Give a trained network learnable strides, and see what it keeps of what it knew.

A small ResNet with ordinary strides learns scikit-learn's digits, which come with the package. Then
`diffstride.convert` takes its strides away and puts learnable ones in their place, at the same
values; its weights stay. Printed are its accuracy on digits it was not trained on:

- before;
- converted, without a step of training: maps are low-pass filtered instead of subsampled now, and
  larger unless windows are tight, so features are close to what the weights expect, not equal;
- after one more epoch, in which weights and strides learn together;
- frozen: constants instead of strides that learn, and the same numbers.

It takes about a minute on one core.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from diffstride import convert, freeze, parameter_groups

SIZE = (1, 32, 32)


class Block(nn.Module):
    """A residual block of the textbook."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def small_resnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 32, stride=2),
        Block(32, 64, stride=2),
        nn.AdaptiveAvgPool2d(1),  # sizes change with the strides
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def load_data() -> list[Tensor]:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = F.interpolate(images, size=SIZE[1:], mode="bicubic")
    labels = torch.tensor(digits.target)
    return train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=0)


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, lr: float) -> None:
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True, drop_last=True)
    # A stride has further to go than a weight; a network without learnable ones has no such group.
    groups = parameter_groups(model, lr=lr, weight_decay=0.01, stride_lr=10 * lr)
    optimiser = torch.optim.AdamW(groups)
    rates = [group["lr"] for group in groups]
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for some, targets in loader:
            loss = F.cross_entropy(model(some), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    add = parser.add_argument
    add("--epochs", type=int, default=10, help="of the network before (%(default)s)")
    add("--smoothness", type=float, default=1.0, help="R of the new strides (%(default)s)")
    conventions = ("tight", "symmetric", "paper")
    text = "where windows fall; with tight ones every map keeps its size (%(default)s)"
    add("--convention", choices=conventions, default="tight", help=text)
    add("--seed", type=int, default=0, help="of weights and the order of images (%(default)s)")
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {args.epochs}")

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    train_images, test_images, train_labels, test_labels = load_data()
    test = (test_images, test_labels)

    model = small_resnet()
    train(model, train_images, train_labels, args.epochs, lr=3e-3)
    print(f"strided               {accuracy(model, *test):6.1%}")

    model.eval()
    rule = {"smoothness": args.smoothness, "convention": args.convention}
    learning, report = convert(model, test_images[:1], **rule)
    print(f"converted             {accuracy(learning, *test):6.1%}")
    train(learning, train_images, train_labels, 1, lr=1e-3)
    print(f"one epoch later       {accuracy(learning, *test):6.1%}")
    print(f"frozen                {accuracy(freeze(learning, SIZE), *test):6.1%}")
    print(f"\n{report}")


if __name__ == "__main__":
    main()
