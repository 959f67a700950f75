# %% [markdown]
# # What resolution does my sound need?
#
# How often must sound be sampled, so that what one wants to know of it can still be heard? The
# answer depends on the task, and usually nobody knows it beforehand. Here we make sounds for which
# we do know it, train a network on them, let `diffstride` find the answer, and then use it.
#
# With recordings of your own, it is the same two commands on a folder of sound files; [the page on
# signals](../signals.md) says in which layouts.

# %%
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from diffstride.lab.cli import main
from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.resolution import INPUT, curves, enough, sentences
from diffstride.lab.training.resolution import measure

torch.set_num_threads(1)  # sums, and so results, would depend on the number of cores
FOLDER = Path("runs/sound_resolution")
shutil.rmtree(FOLDER, ignore_errors=True)  # of the last time
RATE, LENGTH = 4000, 512

# %% [markdown]
# ## Two tasks
#
# A machine hums in one of two ways, and we want to know in which. Both are noise at all
# frequencies, with one band that is louder. In the first task one class is louder from 100 to 250
# Hz, and the other from 250 to 400 Hz: nothing above 400 Hz tells them apart. In the second task
# the bands are from 600 to 750 Hz and from 750 to 900 Hz. All sounds have 4000 samples a second,
# and so reach up to 2000 Hz.

# %%
TASKS = {"low": ((100, 250), (250, 400)), "high": ((600, 750), (750, 900))}


def sounds(bands, number, generator):
    """Noise, three times louder in the band of its class, and the classes."""
    frequencies = np.fft.rfftfreq(LENGTH, 1 / RATE)
    labels = np.arange(number) % len(bands)
    bottom, top = np.array(bands)[labels].T[..., None]
    louder = np.where((bottom <= frequencies) & (frequencies < top), 4.0, 1.0)
    real, imaginary = generator.normal(size=(2, number, len(frequencies)))
    signals = np.fft.irfft((real + 1j * imaginary) * louder, LENGTH)
    return signals.astype(np.float32), labels


for task, bands in TASKS.items():
    generator = np.random.default_rng(0)
    x_train, y_train = sounds(bands, 512, generator)
    x_test, y_test = sounds(bands, 128, generator)
    data = FOLDER / "data" / task
    data.mkdir(parents=True)
    np.savez(
        data / "sounds.npz",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        rate=RATE,
    )

# %% [markdown]
# One sound of each class of the first task, over time and then as the mean spectrum of its class.
# By eye the two sounds are hardly different. The spectra show the bands.

# %%
_, panels = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
x, y = sounds(TASKS["low"], 128, np.random.default_rng(1))
for label in range(2):
    panels[0].plot(np.arange(LENGTH) / RATE, x[label] + 0.8 * label, lw=0.8)
    spectrum = np.abs(np.fft.rfft(x[y == label])).mean(0)
    panels[1].plot(np.fft.rfftfreq(LENGTH, 1 / RATE), spectrum, label=f"class {label}")
panels[0].set(title="Two sounds", xlabel="seconds", yticks=[])
panels[1].set(title="Mean spectra", xlabel="Hz", ylabel="amplitude", ylim=(0, None))
panels[1].legend(frameon=False)
plt.show()

# %% [markdown]
# ## Train
#
# `diffstride train signals_small` trains a network on raw signals. Its first layer is a stride on
# the signal itself, so that the network can choose a sampling rate of its own. In a terminal one
# would write what is printed behind `$`. A line is one epoch; then comes the table of strides,
# whose last column is in Hz.

# %%


def diffstride(words):
    """Run the command `diffstride` with these words."""
    print(f"$ diffstride {words}", flush=True)
    assert main(words.split()) == 0


def last_accuracy(run):
    return float(read_rows(FOLDER / run / "metrics.csv", "test_accuracy")[-1]["test_accuracy"])


OPTIONS = f"--trainer.epochs 3 --out {FOLDER}"
for task in TASKS:
    diffstride(f"train signals_small --data.path {FOLDER}/data/{task} --name {task} {OPTIONS}")
    print()

for task in TASKS:
    first = [row for row in read_rows(FOLDER / task / "strides.csv") if row["layer"] == "sampling"]
    assert 750 < float(first[-1]["cutoff"]) < 1300  # Hz
    assert last_accuracy(task) > 0.95

# %% [markdown]
# Both tasks are learned. Now read the first row of each table. The first stride lets pass about
# 1000 Hz in both, so that both networks have what they need, and the first has more: nothing in
# this training asked for less. Below that row, cut-offs are not of the sound any more. They are of
# what a convolution and its rectifier have made of it, how loud a band is over time for example,
# and that may be slow where the sound is fast.
#
# So learned strides tell what a network lets pass, not what the task needs. For that there is a
# second command.
#
# ## Take resolution away
#
# `diffstride resolution RUN` takes a trained network, removes all frequencies of its input above a
# cut-off, and tests it again, for one cut-off after another. Here is what it finds, in a figure:
# accuracy over the cut-off, for both tasks. The band in which the classes of a task differ is
# shaded. Look where each line falls.

# %%
found = {task: measure(FOLDER / task, steps=12) for task in TASKS}
at_input = {task: curves(steps)[INPUT, 0] for task, steps in found.items()}

_, panel = plt.subplots(figsize=(7, 3.2), layout="constrained")
for i, (task, curve) in enumerate(at_input.items()):
    cutoffs, accuracies = [step.cutoff for step in curve], [step.accuracy for step in curve]
    panel.plot(cutoffs, accuracies, "o-", color=f"C{i}", label=f"{task} bands")
    panel.axvspan(TASKS[task][0][0], TASKS[task][1][1], color=f"C{i}", alpha=0.15, lw=0)
panel.axhline(0.5, color="black", linestyle=":", label="guessing")
panel.set(title="Accuracy without what is above a cut-off", xlabel="cut-off (Hz)", xscale="log")
panel.set(ylabel="accuracy", ylim=(0.4, 1.03))
panel.legend(frameon=False)
plt.show()

for task, steps in found.items():
    print(f"{task}: {sentences(steps)[0]}")

# %% [markdown]
# As long as the cut-off is above the band, nothing is lost. Once all of the band is gone, the
# network guesses. That is what must come out, and it did: the lines fall within the bands, those of
# the first task at a much lower frequency than those of the second. In between it depends on the
# network, which may listen to either class.

# %%
for task, curve in at_input.items():
    (bottom, _), (_, top) = TASKS[task]
    assert all(step.accuracy > 0.95 for step in curve if step.cutoff >= top)
    assert all(step.accuracy < 0.7 for step in curve if step.cutoff <= bottom)
needed = {task: enough(curve).cutoff for task, curve in at_input.items()}
assert 100 < needed["low"] <= 500 < 600 < needed["high"]

# %% [markdown]
# ## Use it
#
# Sound with 1000 samples a second reaches up to 500 Hz. By the figure that is enough for the first
# task, and not for the second. If so, recordings of the first need a quarter of the samples, and
# its network much less work. `--data.rate` resamples the data, and we train anew.

# %%
for task in TASKS:
    path = f"{FOLDER}/data/{task}"
    diffstride(
        f"train signals_small --data.path {path} --data.rate 1000 --name {task}-1k {OPTIONS}"
    )
    print()

# %% [markdown]
# It is so. The first task is learned as before at less than a third of the cost, and the second,
# whose bands are gone, not at all:

# %%
cost = {}
for run in ("low", "low-1k", "high", "high-1k"):
    (*_, last) = read_rows(FOLDER / run / "metrics.csv", "mmacs")
    cost[run] = float(last["mmacs"])
    print(f"{run:8} {last_accuracy(run):6.1%}  {cost[run]:.2f} million MACs")

assert last_accuracy("low-1k") > 0.95
assert cost["low-1k"] < cost["low"] / 3
assert last_accuracy("high-1k") < 0.7

# %% [markdown]
# What the curves do not say is what a network could do that has learned with less resolution from
# the beginning: it may need less than one that was free to use all there was. That is why the last
# step is to train again. More on the command: [how much resolution does my task
# need](../resolution.md). Spectrograms have two axes, time and frequency, and can be asked about
# each: [sound](../audio.md).
