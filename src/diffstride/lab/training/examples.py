"""Examples that a run keeps of its data, so that its report can show some without them."""

from typing import Any

import torch

from diffstride.lab.data.batches import ImageBatches
from diffstride.lab.data.signal_batches import SignalEvaluation
from diffstride.lab.data.spectrogram import log_mel
from diffstride.lab.training.preparation import Prepared

MOST_SAMPLES = 2000  # of an example that a report draws


def choose_examples(prepared: Prepared) -> list[dict[str, Any]]:
    """Return test examples of three classes, each with its class, for a look without the data.

    Images are rows of grey values up to 255, recordings the spectrogram of a second as such an
    image, and signals their first samples, scaled to −1 … 1.
    """
    classes, test = prepared.facts["classes"], prepared.test
    if isinstance(test, SignalEvaluation):
        labels = test.signals.labels
    elif isinstance(test, ImageBatches):
        labels = test.split.labels
    else:
        task, sounds = next(iter(test.tasks.items()))
        labels, classes = sounds.labels, classes[task] if task else classes
    chosen = first_of_classes(labels)
    names = [classes[label] for label in labels[chosen].tolist()]
    if isinstance(test, SignalEvaluation):
        whole = prepared.facts["size"][1]
        values = [_first_samples(test.signals, i, whole) for i in chosen]
        return [{"label": n, "samples": v} for n, v in zip(names, values, strict=True)]
    if isinstance(test, ImageBatches):
        maps = test.seen(torch.tensor(chosen)).mean(1)
    else:
        maps = log_mel(sounds.windows([(i, 0) for i in chosen]))
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        maps = 255 * (maps - low) / (high - low).clamp(min=1e-6)
    pixels = maps.round().int().tolist()
    return [{"label": n, "pixels": p} for n, p in zip(names, pixels, strict=True)]


def first_of_classes(labels: torch.Tensor) -> list[int]:
    """Return the number of the first example of each of three classes, in order."""
    first = {label: i for i, label in reversed(list(enumerate(labels.tolist())))}
    return sorted(first[label] for label in sorted(first)[:3])


def _first_samples(signals: Any, index: int, most: int) -> list[float]:
    """Return the beginning of the first channel of a signal, as far as there is signal."""
    length = min(MOST_SAMPLES, most, signals.length(index))
    (samples,), _ = signals.windows([(index, 0)], length)
    low, high = samples[0].double().aminmax()
    scaled = (2 * samples[0].double() - low - high) / (high - low).clamp(min=1e-12)
    return [round(value, 4) for value in scaled.tolist()]
