"""How much of a training step on recordings goes into fetching them and into spectrograms.

    python -m benchmarks.audio_data [--quick]

The recipe's network at a quarter of its width (the quick form: an eighth, and a quarter of the
batch), for one task and for five, on recordings of one to ten seconds in a cache that is warm. Data
time is what it takes to draw a batch of windows from the cache; the spectrogram is a part of the
step. A wider network takes longer, and data the same time.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks import harness
from diffstride import models
from diffstride.lab.data.batches import AudioBatches
from diffstride.lab.data.recordings import Recordings
from diffstride.lab.data.spectrogram import LogMel
from diffstride.lab.training.classifier import AudioClassifier
from diffstride.lab.training.recipes import RECIPES

TASKS = {"scenes": 10, "birds": 2, "instruments": 11, "pitch": 128, "commands": 35}


def recordings(path: Path, classes: int, number: int = 400) -> Recordings:
    """Noise of one to ten seconds in a memory-mapped file, as the cache has it."""
    generator = np.random.default_rng(classes)
    starts = np.cumsum([0, *generator.integers(16_000, 160_000, number)])
    noise = generator.integers(-3000, 3000, starts[-1], dtype=np.int16)
    noise.tofile(path)
    labels = torch.from_numpy(generator.integers(0, classes, number))
    return Recordings(np.memmap(path, np.int16, "r"), starts, labels)


def measure(tasks: dict[str, int], folder: Path, quick: bool, rounds: int) -> dict[str, float]:
    """Median seconds of fetching a batch, of its spectrograms and of a step."""
    config = RECIPES["audio_multitask"].config
    batch_size = config.data.batch_size // (4 if quick else 1)
    config = replace(config, data=replace(config.data, batch_size=batch_size))
    data = {name: recordings(folder / name, classes) for name, classes in tasks.items()}
    heads = tasks if len(tasks) > 1 else next(iter(tasks.values()))
    model = models.create("audio_cnn", num_classes=heads, width=0.125 if quick else 0.25)
    labels = {name: d.labels for name, d in data.items()}
    module = AudioClassifier(model, config, (1, 100, 64), LogMel(), tasks, labels)
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-4)
    batches = iter(AudioBatches(data, batch_size, steps=1000))
    batch = next(batches)

    def step() -> None:
        optimiser.zero_grad()
        module.training_step(batch, 0).backward()
        optimiser.step()

    return harness.interleaved(
        {
            "data": lambda: next(batches),
            "spectrogram": lambda: [module.frontend(waves) for waves, _ in batch.values()],
            "step": step,
        },
        rounds,
    )


def main() -> None:
    options = harness.arguments(__doc__)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for tasks in (dict([*TASKS.items()][:1]), TASKS):
            rounds = min(options.rounds, 5)  # a step of the full form takes a while
            found = measure(tasks, Path(folder), options.quick, rounds)
            rows.append(
                {
                    "tasks": len(tasks),
                    "data ms": 1e3 * found["data"],
                    "spectrogram ms": 1e3 * found["spectrogram"],
                    "step ms": 1e3 * found["step"],
                    "data / step": found["data"] / found["step"],
                }
            )
    note = "float32, R = 4; windows of one second, a warm cache; one training step with Adam"
    harness.report("audio_data", rows, options, note)


if __name__ == "__main__":
    main()
