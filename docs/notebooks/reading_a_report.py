# %% [markdown]
# # Reading a report
#
# Every `diffstride train` ends with a page, `report.html` in the folder of the run. It needs
# nothing but itself: send it to somebody, or open it in ten years. Here we train a small network on
# handwritten digits, and go through its report part by part: what is to be seen, what it means, and
# which file of the run it was made of.

# %%
import contextlib
import csv
import io
import re
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from diffstride.lab.cli import main

torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
OUT = Path("runs/reading_a_report")
RUN = OUT / "digits"
shutil.rmtree(OUT, ignore_errors=True)  # of the last time


def diffstride(words):
    """Run the command `diffstride` with these words."""
    print(f"$ diffstride {words}", flush=True)
    assert main(words.split()) == 0


diffstride(f"train digits --trainer.epochs 4 --model.width 0.125 --name digits --out {OUT}")

# %% [markdown]
# We also ask how much resolution the task needs, which adds a part to the report. It prints a long
# table, of which these are the last lines:

# %%
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    diffstride(f"resolution {RUN} --steps 5")
print(*printed.getvalue().splitlines()[-3:], sep="\n")

# %% [markdown]
# This is what there is now, and [this is the report](runs/reading_a_report/digits/report.html). To
# show its parts here one by one, we cut them out.

# %%
print("files of the run:", *sorted(path.name for path in RUN.iterdir()), sep="\n  ")


def read(name):
    with (RUN / name).open() as file:
        return list(csv.DictReader(file))


report = (RUN / "report.html").read_text("utf-8")
head = re.sub(r"<script>.*?</script>", "", report[: report.index("<body>")], flags=re.DOTALL)
parts = dict(re.findall(r"<h2 id=[^>]*>(.*?)</h2>(.*?)</section>", report, flags=re.DOTALL))
for title, part in parts.items():
    page = (
        f'{head}<body style="padding: 0.8rem; zoom: 0.85"><section>{part}</section></body></html>'
    )
    (OUT / f"{title.lower().replace(' ', '_')}.html").write_text(page, "utf-8")
print("parts of the report:", *parts, sep="\n  ")

# %% [markdown]
# ## Summary
#
# What one wants to know first: how good the network is on digits that it has not seen, what it
# costs (millions of multiply-accumulates for one image), and what became of the strides. The global
# striding factor is the product of all strides along both axes: one number for how much is left out
# in all.
#
# <iframe src="runs/reading_a_report/summary.html"
# title="Summary of the report"
# loading="lazy" width="100%" height="175" style="border: 0"></iframe>
#
# The numbers are in the last line of `metrics.csv`. The accuracy is that of the last epoch, not of
# the best one, because choosing the best by its test accuracy would flatter it.

# %%
last = read("metrics.csv")[-1]
print(f"accuracy {float(last['test_accuracy']):.1%}, {float(last['mmacs']):.2f} million MACs")

assert f"{100 * float(last['test_accuracy']):.1f} %" in parts["Summary"]
assert float(last["test_accuracy"]) > 0.9

# %% [markdown]
# ## Strides while training
#
# A line for each layer and axis. A line that is still on its way at the last epoch has not found
# its place: train longer, or give strides a higher learning rate (`--optim.stride_lr`). If height
# and width part, the task may need more detail along one of them. Lines that fall to 1 say that a
# layer wants to keep all it gets.
#
# <iframe src="runs/reading_a_report/strides_while_training.html"
# title="Strides while training"
# loading="lazy" width="100%" height="390" style="border: 0"></iframe>
#
# The numbers are in `strides.csv`, which has a row for each epoch, layer and axis. A figure of
# one's own takes a few lines:

# %%
rows = read("strides.csv")
_, panel = plt.subplots(figsize=(6, 2.8), layout="constrained")
lines = dict.fromkeys((row["layer"], row["axis"]) for row in rows)
for layer, axis in lines:
    own = [row for row in rows if (row["layer"], row["axis"]) == (layer, axis)]
    epochs, strides = [int(row["epoch"]) for row in own], [float(row["stride"]) for row in own]
    name = ("height", "width")[int(axis)]
    panel.plot(epochs, strides, "--" if int(axis) else "-", label=f"{layer}, {name}")
panel.set(title="The same from strides.csv", xlabel="epoch", ylabel="stride", xticks=range(5))
panel.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

assert len(lines) == 6
assert all(float(row["stride"]) == 2 for row in rows if row["epoch"] == "0")
assert all(float(row["stride"]) != 2 for row in rows if row["epoch"] == "4")

# %% [markdown]
# ## How much resolution the task needs
#
# Only there after `diffstride resolution`. Detail is taken away from the trained network, more and
# more of it, at the input or behind a layer, and each time it is tested. Follow a line from the
# right to the left: as long as it is flat, the detail was not needed.
#
# <iframe src="runs/reading_a_report/how_much_resolution_the_task_needs.html"
# title="How much resolution the task needs"
# loading="lazy" width="100%" height="660" style="border: 0"></iframe>
#
# Of these digits we know the answer. They have 8×8 pixels and are shown at 32×32, so nothing of
# them is above 4 cycles in 32 pixels, which is 0.125 cycles per pixel. All that is above it can be
# taken away at the input without loss; far below it, the digits themselves are gone.
# `resolution.csv` has the numbers:

# %%
for row in read("resolution.csv"):
    if row["place"] == "input":
        cutoff, accuracy = float(row["cutoff"]), float(row["accuracy"])
        print(f"{row['name']:6} up to {cutoff:.3f} cycles per pixel: accuracy {accuracy:.1%}")
        if cutoff >= 0.125:
            assert float(row["kept"]) > 0.97
        if cutoff < 0.04:
            assert float(row["kept"]) < 0.9

# %% [markdown]
# ## What a per cent of stride buys
#
# Where would you spend computation next, and where would you save some? For each stride: how much
# of all computation one per cent more of it saves, and what that adds to the loss. The last column
# is the second divided by the first. At its top is the stride to make smaller if you can afford it,
# at its bottom the one to make larger if you can't. Look at the errors behind ±: what is within two
# of them of 0 may be chance.
#
# <iframe src="runs/reading_a_report/what_a_per_cent_of_stride_buys.html"
# title="What a per cent of stride buys"
# loading="lazy" width="100%" height="470" style="border: 0"></iframe>
#
# The columns `cost_saved`, `loss_gradient` and `loss_gradient_error` of `strides.csv` are what this
# is made of. The first stride saves most here, since everything behind it works on what it leaves:

# %%
saved = [float(row["cost_saved"]) for row in rows if row["epoch"] == "4"]
for (layer, axis), percent in zip(lines, saved, strict=True):
    print(f"{layer}, axis {axis}: one per cent more saves {percent:.2f} % of the computation")

assert min(saved[:2]) > max(saved[2:])

# %% [markdown]
# ## Windows on the data
#
# What each layer lets pass. The grey area is the spectrum of real images, that is how much of each
# frequency there is in them. A window that ends within the grey takes something away that was
# there; one that ends far to the right of it has nothing to take away. Below are images after the
# windows alone, without the convolutions between, which gives an idea of how much a layer can still
# see.
#
# <iframe src="runs/reading_a_report/windows_on_the_data.html"
# title="Windows on the data"
# loading="lazy" width="100%" height="1000" style="border: 0"></iframe>
#
# ## What the layers let pass
#
# The same as numbers: the finest pattern that comes through a layer and all before it. It never
# rises from one layer to the next, because what one has taken away, none behind it can bring back.
#
# <iframe src="runs/reading_a_report/what_the_layers_let_pass.html"
# title="What the layers let pass"
# loading="lazy" width="100%" height="400" style="border: 0"></iframe>

# %%
for axis in ("0", "1"):
    own = [row for row in rows if row["epoch"] == "4" and row["axis"] == axis]
    cutoffs = [float(row["cutoff"]) for row in own]
    print(("height", "width")[int(axis)], "cycles per pixel:", [round(x, 3) for x in cutoffs])
    assert cutoffs == sorted(cutoffs, reverse=True)

# %% [markdown]
# ## Training
#
# Accuracy and loss over the epochs, of training and of test images. If both still rise, train
# longer. If the one of training images rises and the other falls, the network learns by heart. Test
# images may well do better than training images in the first epochs: those are averaged over an
# epoch in which the network was still getting better, and are shifted by a few pixels to make it
# harder.
#
# <iframe src="runs/reading_a_report/training.html"
# title="Training"
# loading="lazy" width="100%" height="330" style="border: 0"></iframe>
#
# ## The run, data and environment
#
# The last tables say in one line what the run came to, with J, the value of the paper's regulariser
# on strides, and the seconds of a training step:
#
# <iframe src="runs/reading_a_report/the_run.html"
# title="The run"
# loading="lazy" width="100%" height="155" style="border: 0"></iframe>
#
# Then come the data, the versions, the machine and the commit, and folded together all settings:
# what one needs to do it again. `diffstride train runs/.../config.yaml` does.
#
# <iframe src="runs/reading_a_report/data_and_environment.html"
# title="Data and environment"
# loading="lazy" width="100%" height="650" style="border: 0"></iframe>

# %%
again = (RUN / "config.yaml").read_text()
print(*again.splitlines()[:7], "...", sep="\n")

assert "digits" in parts["The run"]
assert torch.__version__ in parts["Data and environment"]

# %% [markdown]
# ## Try a stride
#
# The last part of a report is a panel: choose a layer and an example, drag the stride, and see
# which frequencies are left and what the example looks like then. It is in [the report
# itself](runs/reading_a_report/digits/report.html#panel), as it needs its script.
#
# A report of several runs, of a sweep or of a search has other parts besides, and is made by
# `diffstride report FOLDER...`. What is in the folder of a run is told in
# [training](../training.md), more on resolution and on what a per cent of stride buys in [reading
# what was learned](../resolution.md).

# %%
assert "Try a stride" in report
