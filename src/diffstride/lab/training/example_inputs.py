"""A few real inputs, for whoever looks at a run later without its data."""

from typing import Any

import torch
from torch import Tensor

from diffstride.lab.data.image_batches import ImageBatches
from diffstride.lab.data.spectrogram import log_mel
from diffstride.lab.training.prepare import Prepared

NUMBER = 3


def choose(prepared: Prepared) -> list[dict[str, Any]]:
    """Test examples of different classes: of each its class, and rows of grey values up to 255.

    Recordings are shown as spectrograms of their first second.
    """
    classes = prepared.facts["classes"]
    test = prepared.test
    if isinstance(test, ImageBatches):
        chosen = _of_different_classes(test.split.labels)
        maps = test.split.take(chosen).float().mean(1)
        names = [classes[label] for label in test.split.labels[chosen].tolist()]
    else:
        task, recordings = next(iter(test.tasks.items()))
        chosen = _of_different_classes(recordings.labels)
        maps = log_mel(recordings.windows([(i, 0) for i in chosen.tolist()]))
        low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
        maps = 255 * (maps - low) / (high - low).clamp(min=1e-6)
        own = classes[task] if task else classes
        names = [own[label] for label in recordings.labels[chosen].tolist()]
    pixels = maps.round().int().tolist()
    return [{"label": n, "pixels": p} for n, p in zip(names, pixels, strict=True)]


def _of_different_classes(labels: Tensor) -> Tensor:
    """The first of each of some classes."""
    found = [int((labels == label).nonzero()[0]) for label in sorted(set(labels.tolist()))[:NUMBER]]
    return torch.tensor(sorted(found))
