"""Train on digits without a budget, with one that is a limit and with one that is spent, and draw
what the network costs after every step (docs/results/budget.svg, shown in docs/budgets.md).

    python -m docs.budget [FOLDER]
"""

import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from diffstride import Budget, CostModel, models, parameter_groups
from docs.figures import BLUE, GREEN, GREY, plt, save
from examples.digits import load_data

SIZE, LIMIT, EPOCHS = (1, 32, 32), 3.5e6, 10
WAYS = {"no budget": (None, GREY), "at most": (False, BLUE), "spent": (True, GREEN)}


def train(spend):
    """The cost before and after every step, in millions, and the accuracy in the end."""
    torch.manual_seed(0)
    images, test_images, labels, test_labels = load_data()
    windows = {"smoothness": 1.0, "convention": "tight", "placement": "before"}
    model = models.create("resnet18", num_classes=10, in_channels=1, width=0.125, **windows)
    groups = parameter_groups(model, lr=3e-3, weight_decay=0.01, stride_lr=0.1)
    rates = [group["lr"] for group in groups]
    optimiser = torch.optim.AdamW(groups)
    steps = EPOCHS * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    costs = CostModel(model, SIZE)
    budget = None if spend is None else Budget(model, SIZE, macs=LIMIT, spend=spend)
    if budget:
        budget.hold()
    history = [costs.value("macs") / 1e6]
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(images)).split(64):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if budget:
                budget.hold()
            history.append(costs.value("macs") / 1e6)
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean()
    return history, accuracy.item()


def main(folder):
    torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
    figure, axis = plt.subplots(figsize=(7, 3))
    axis.axhline(LIMIT / 1e6, color="black", linestyle=":", linewidth=1)
    for name, (spend, colour) in WAYS.items():
        history, accuracy = train(spend)
        axis.plot(history, color=colour, label=f"{name}: {accuracy:.1%}")
        off = max(abs(cost * 1e6 / LIMIT - 1) for cost in history)
        print(f"{name}: {history[-1]:.2f} M in the end, at most {off:.1%} off, {accuracy:.1%}")
    axis.set(xlabel="step", ylabel="M MACs", ylim=(0, None))
    axis.legend(frameon=False, title="test accuracy", loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, folder / "budget.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
