# %% [markdown]
# # First steps
#
# A small network learns to read digits, and how far to downsample them while it does so. We look at
# what one layer does to a picture, watch strides move, ask what the network costs, hold it to half
# of that, and turn it into constants.
#
# The digits come with scikit-learn. All of it takes well under a minute.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from diffstride import Budget, DiffStride2d, cost, freeze, parameter_groups, stride_table
from diffstride.functional import window

torch.manual_seed(0)
torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores

# %% [markdown]
# ## The data
#
# 1797 digits of 8×8 pixels, which we show at 32×32, so that there is something to downsample. Five
# of them:

# %%
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
images = F.interpolate(images, size=(32, 32), mode="bicubic")
labels = torch.tensor(digits.target)
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=0.25, stratify=labels, random_state=0
)

_, panels = plt.subplots(1, 5, figsize=(9, 2), layout="constrained")
for image, label, panel in zip(test_images, test_labels, panels, strict=False):
    panel.imshow(image[0].numpy(), cmap="gray")
    panel.set(title=f"a {label}", xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## One layer
#
# `DiffStride2d` downsamples by any stride of 1 or more, not only by whole numbers. `tight` windows
# make maps as small as those of an ordinary strided layer: stride 2 makes 16 of 32. Here is one
# digit at five strides. `norm="forward"` keeps brightness as it is; networks do well without.

# %%
tight = {"smoothness": 1.0, "convention": "tight"}
digit = test_images[1]

_, panels = plt.subplots(1, 5, figsize=(9, 2.2), layout="constrained")
for stride, panel in zip((1.0, 1.5, 2.0, 3.2, 8.0), panels, strict=True):
    layer = DiffStride2d(stride, norm="forward", **tight)
    small = layer(digit).detach()
    panel.imshow(small[0].numpy(), cmap="gray")
    panel.set(title=f"stride {stride}\n{small.shape[1]} × {small.shape[2]}", xticks=[], yticks=[])
plt.show()

assert DiffStride2d(2.0, **tight).output_size((32, 32)) == (16, 16)
assert DiffStride2d(1.5, **tight).output_size((32, 32)) == (21, 21)

# %% [markdown]
# What is lost are fine details, that is high frequencies. Below is the weight that each frequency
# of an axis of 32 samples has. It falls from 1 to 0 over `smoothness` frequencies, and where it
# falls depends on the stride: the larger the stride, the fewer frequencies are left. The fall is
# what gradients go through. A stride that moves a little moves it a little, and so training can
# tell whether that was good.

# %%
_, panel = plt.subplots(figsize=(6, 2.6), layout="constrained")
for stride in (2.0, 2.2, 3.2, 8.0):
    weights = window(32, stride, offset=0, crop=False, **tight)
    panel.plot(weights, marker=".", label=f"stride {stride}")
panel.set(title="What passes", xlabel="frequency (cycles per image)", ylabel="weight")
panel.legend(frameon=False)
plt.show()

# %% [markdown]
# ## A network
#
# An ordinary one: where poolings would stand, there are two layers with strides to learn, 2 at
# first. What comes out of the second may have any size, so an average over all of it follows.

# %%
SIZE = (1, 32, 32)


def small_network() -> nn.Sequential:
    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [layer, nn.BatchNorm2d(outputs, momentum=0.3), nn.ReLU()]

    return nn.Sequential(
        *convolution(1, 12),
        DiffStride2d(2.0, **tight),
        *convolution(12, 24),
        DiffStride2d(2.0, **tight),
        *convolution(24, 48),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


model = small_network()
print(stride_table(model, SIZE))

# %% [markdown]
# The table says what strides mean, here before training. Of each layer: the sizes before and after
# it; which part of all computation happens from there to the next one; how much of all computation
# one per cent more of the stride would save, along height and along width; how many times smaller
# maps are than the input; and the finest pattern that comes through, its cut-off. Half a cycle per
# sample is the finest that there is.
#
# ## Training
#
# Training is what it always is, but for one line. `parameter_groups` gives strides a learning rate
# of their own, since they have further to go than weights, and lets no weight decay pull at them.
# We write down the strides after every step.

# %%


def train(
    model: nn.Module, epochs: int, budget: Budget | None = None
) -> tuple[Tensor, list[float]]:
    """Train, and return strides and costs after each step; holds a budget if there is one."""
    layers = [layer for layer in model.modules() if isinstance(layer, DiffStride2d)]
    groups = parameter_groups(model, lr=3e-3, weight_decay=0.01, stride_lr=0.03)
    rates = [group["lr"] for group in groups]
    optimiser = torch.optim.AdamW(groups)
    steps = epochs * (len(train_images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    strides, costs = [[layer.strides for layer in layers]], []
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(train_images))
        for batch in order.split(64)[: len(train_images) // 64]:
            loss = F.cross_entropy(model(train_images[batch]), train_labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if budget is not None:
                budget.hold()
                costs.append(budget.cost / 1e6)
            strides.append([layer.strides for layer in layers])
    return torch.tensor(strides), costs


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    return (model.eval()(test_images).argmax(1) == test_labels).float().mean().item()


def draw_strides(strides: Tensor, title: str) -> None:
    _, panel = plt.subplots(figsize=(7, 3), layout="constrained")
    for layer in range(2):
        for axis, name in enumerate(("height", "width")):
            look = {"color": f"C{layer}", "linestyle": "--" if axis else "-"}
            panel.plot(strides[:, layer, axis], label=f"layer {layer + 1}, {name}", **look)
    panel.set(title=title, xlabel="training step", ylabel="stride")
    panel.legend(frameon=False)
    plt.show()


# %% [markdown]
# Now look how strides move: solid lines are height, dashed ones width. They go their own ways, and
# end at numbers that are not whole.

# %%
strides, _ = train(model, epochs=8)
draw_strides(strides, "Strides while training")
print(f"accuracy on digits that the network has not seen: {accuracy(model):.1%}")

assert accuracy(model) > 0.95
moved = (strides[-1] - strides[0]).abs()
assert moved.max() > 0.3
assert (strides[-1] - strides[-1].round()).abs().min() > 1e-4

# %% [markdown]
# ## What was learned, and what it costs
#
# The same table after training. Nobody asked for a cheaper network, and strides did not have to
# grow; that it became cheaper means that digits can do without the details. `cost` counts
# multiply-accumulates layer by layer.

# %%
print(stride_table(model, SIZE))
beginning = cost(small_network(), SIZE)
learned = cost(model, SIZE)
print(f"before training {beginning}")
print(f"after training  {learned}")

assert learned.macs < beginning.macs

# %% [markdown]
# ## A budget
#
# What a network may cost is often known beforehand. `Budget` holds strides to a cost: call `hold()`
# after each step of the optimiser. Training then decides only where computation is spent, not how
# much of it. Here a new network gets half of what the strides of 2 would cost. Below are its
# strides, and the cost after each step in millions of multiply-accumulates. It is not held to the
# last digit, because maps are made of whole samples.

# %%
thrifty = small_network()
allowed = beginning.macs / 2
budget = Budget(thrifty, SIZE, macs=allowed)
budget.hold()
strides, costs = train(thrifty, epochs=8, budget=budget)
draw_strides(strides, "Strides while training, at half the cost")

_, panel = plt.subplots(figsize=(7, 2.4), layout="constrained")
panel.plot(costs, label="the network")
panel.axhline(allowed / 1e6, color="black", linestyle=":", label="the budget")
panel.set(
    title="Cost while training", xlabel="training step", ylabel="million MACs", ylim=(0, None)
)
panel.legend(frameon=False, loc="lower right")
plt.show()
print(f"accuracy at half the cost: {accuracy(thrifty):.1%}")

assert max(abs(spent * 1e6 / allowed - 1) for spent in costs) < 0.03
assert accuracy(thrifty) > 0.95

# %% [markdown]
# ## Constants
#
# Once strides have been learned, `freeze` makes constants of them. The frozen network computes the
# same numbers, has no strides to learn, and can be compiled and exported like any other. In the
# printed network, the two layers are called `Frozen` now.

# %%
frozen = freeze(thrifty, SIZE)
print(frozen)

with torch.no_grad():
    difference = (frozen(test_images) - thrifty.eval()(test_images)).abs().max().item()
print(f"largest difference of any score: {difference:.1e}")

assert difference < 1e-4
assert not any(isinstance(layer, DiffStride2d) for layer in frozen.modules())

# %% [markdown]
# Where to go from here: [a network that you have already](convert_transformers.md), [what
# resolution sound needs](sound_resolution.md), [how to read a report](reading_a_report.md); more on
# [training](../training.md), [budgets](../budgets.md) and [what to do with a network that has
# learned](../deploy.md).
