# %% [markdown]
# # Convert a network of transformers
#
# A ResNet of [transformers](https://huggingface.co/docs/transformers) gets learnable strides in the
# place of its own, keeps its weights, trains a little, and becomes a file that runs without
# PyTorch.
#
# Usually one would begin with a network that others have trained,
# `from_pretrained("microsoft/resnet-18")`. Nothing is downloaded here: a small ResNet is built from
# its config, and learns scikit-learn's digits first. All that comes after that is what one would do
# with a larger one.

# %%
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F
from transformers import ResNetConfig, ResNetForImageClassification
from transformers.utils.logging import disable_progress_bar

from diffstride import (
    DiffStride2d,
    convert,
    export_onnx,
    freeze,
    models,
    parameter_groups,
    stride_table,
)

disable_progress_bar()  # of files that are read and written: they are small
torch.manual_seed(0)
torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores

SIZE = (1, 64, 64)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
images = F.interpolate(images, size=SIZE[1:], mode="bicubic")
labels = torch.tensor(digits.target)
train_images, test_images, train_labels, test_labels = train_test_split(
    images, labels, test_size=0.25, stratify=labels, random_state=0
)

# %% [markdown]
# ## A network with ordinary strides
#
# It downsamples four times by 2: in its first convolution, in the pooling after that, and at the
# beginning of two stages. `train` is for this network and for the converted one: networks without
# strides to learn have no group of parameters for them, and all else is alike.

# %%


def train(model: nn.Module, epochs: int, lr: float) -> None:
    optimiser = torch.optim.AdamW(
        parameter_groups(model, lr=lr, weight_decay=0.01, stride_lr=10 * lr)
    )
    rates = [group["lr"] for group in optimiser.param_groups]
    steps = epochs * (len(train_images) // 32)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(train_images))
        for batch in order.split(32)[: len(train_images) // 32]:
            loss = model(train_images[batch], labels=train_labels[batch]).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    return (model(test_images).logits.argmax(1) == test_labels).float().mean().item()


config = ResNetConfig(
    num_channels=1,
    embedding_size=16,
    hidden_sizes=[16, 32, 64],
    depths=[1, 1, 1],
    layer_type="basic",
    num_labels=10,
)
strided = ResNetForImageClassification(config)
train(strided, epochs=5, lr=3e-3)
print(f"strided: {accuracy(strided):.1%}")

assert accuracy(strided) > 0.95

# %% [markdown]
# ## Convert
#
# `convert` runs the network once on an example to see what meets what, and returns a copy with
# learnable strides, and a report. In the report, look for three things. Every map has the size that
# it had. Both branches of a residual block are in one group: they share one stride, so that their
# outputs fit whatever it becomes. And the last line says what the network costs now: convolutions
# compute what used to be skipped, before it is low-pass filtered and downsampled.

# %%
learning, report = convert(strided, test_images[:1])
print(report)
print()
print(f"converted, without a step of training: {accuracy(learning):.1%}")

groups = [site.group for site in report.sites]
assert len(groups) == 6 and len(set(groups)) == 4

# %% [markdown]
# All weights are those of the network before. Features are not exactly what they were, because an
# ordinary stride keeps every second sample as it is, and a learnable one removes fine detail first.
# So most of what the network knew is still there, not all of it.
#
# ## Fine-tune
#
# Two epochs, in which weights and strides learn together, make up for that.

# %%
before = accuracy(learning)
train(learning, epochs=2, lr=1e-3)
print(f"converted and fine-tuned: {accuracy(learning):.1%}")

assert before > 0.5
assert accuracy(learning) > before
assert accuracy(learning) > 0.95

# %% [markdown]
# This is where the strides are now. All began at 2, the dotted line.

# %%
table = stride_table(learning, SIZE)
_, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
for axis, name in enumerate(("height", "width")):
    panel.plot([row.strides[axis] for row in table.rows], "o" if axis else "s", label=name)
panel.axhline(2.0, color="black", linestyle=":")
panel.set_xticks(range(4), ["first convolution", "pooling", "second stage", "third stage"])
panel.set(title="Strides after two epochs", ylabel="stride")
panel.legend(frameon=False)
plt.show()
print(table)

assert all(stride != 2.0 for row in table.rows for stride in row.strides)

# %% [markdown]
# ## Save it
#
# `save_pretrained` is that of transformers. What was converted is written into its config, and
# `diffstride.models.from_pretrained` builds the converted network again. (The one of transformers
# would build the strided network, as it knows nothing of learned strides.)

# %%
folder = Path("runs/convert_transformers")
shutil.rmtree(folder, ignore_errors=True)  # of the last time
learning.save_pretrained(folder)
again = models.from_pretrained(folder)
print(sorted(path.name for path in folder.iterdir()))

with torch.no_grad():
    assert torch.equal(again.eval()(test_images).logits, learning(test_images).logits)

# %% [markdown]
# ## Ship it
#
# `freeze` makes constants of strides. `export_onnx` does that by itself and writes a file that
# needs nothing but an ONNX runtime; it runs the file and compares it with the network before it
# says that it is good. We do so again, on all test digits. In the figure each dot is one score of
# one digit: all lie on the diagonal, so both say the same.

# %%
frozen = freeze(learning, SIZE)
assert not any(isinstance(layer, DiffStride2d) for layer in frozen.modules())

path = export_onnx(learning, folder / "model.onnx", SIZE)
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
(name,) = [given.name for given in session.get_inputs()]
(scores,) = session.run(None, {name: test_images.numpy()})
with torch.no_grad():
    expected = learning(test_images).logits
    constant = frozen(test_images).logits

_, panel = plt.subplots(figsize=(3.6, 3.4), layout="constrained")
panel.plot(expected.flatten(), scores.flatten(), ".", markersize=2)
panel.set(title="Scores of all test digits", xlabel="PyTorch", ylabel="ONNX file")
plt.show()

in_file = torch.tensor(scores)
agree = (in_file.argmax(1) == expected.argmax(1)).float().mean().item()
print(f"the file is {path.stat().st_size / 1e3:.0f} kB, and gives {agree:.1%} the same answer")
print(f"largest difference of any score, frozen: {(constant - expected).abs().max():.1e}")
print(f"largest difference of any score, file:   {(in_file - expected).abs().max():.1e}")

assert agree == 1.0
assert torch.allclose(constant, expected, atol=1e-3)
assert torch.allclose(in_file, expected, atol=1e-3)

# %% [markdown]
# More on which layers can be converted and what to leave alone: [convert](../convert.md). A network
# from the hub is trained with `transformers.Trainer` in the same way, with an optimiser made of
# `parameter_groups`: [Hugging Face](../huggingface.md).
