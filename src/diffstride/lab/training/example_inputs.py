"""A few real inputs, for whoever looks at a run later without its data."""

from typing import Any

import torch
from torch import Tensor

from diffstride.lab.data.batches import ImageBatches
from diffstride.lab.data.spectrogram import log_mel
from diffstride.lab.training.preparation import Prepared

NUMBER = 3


def choose_examples(prepared: Prepared) -> list[dict[str, Any]]:
    """Return test examples of different classes, each a class and rows of grey values up to 255.

    Recordings are shown as spectrograms of their first second.
    """
    classes, test = prepared.facts["classes"], prepared.test
    if isinstance(test, ImageBatches):
        labels = test.split.labels
        chosen = _first_of_classes(labels)
        maps = test.split.take(chosen).float().mean(1)
    else:
        task, recordings = next(iter(test.tasks.items()))
        labels, classes = recordings.labels, classes[task] if task else classes
        chosen = _first_of_classes(labels)
        maps = log_mel(recordings.windows([(i, 0) for i in chosen.tolist()]))
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        maps = 255 * (maps - low) / (high - low).clamp(min=1e-6)
    names = [classes[label] for label in labels[chosen].tolist()]
    pixels = maps.round().int().tolist()
    return [{"label": n, "pixels": p} for n, p in zip(names, pixels, strict=True)]


def _first_of_classes(labels: Tensor) -> Tensor:
    """Return where the first example of each of the first classes is."""
    classes = sorted(set(labels.tolist()))[:NUMBER]
    return torch.tensor(sorted(int((labels == label).nonzero()[0]) for label in classes))
