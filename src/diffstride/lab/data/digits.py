"""The digits that come with scikit-learn: real images that need no network."""

import torch
from torch.nn import functional as F

from diffstride.lab.data.images import DecodedImages, ImageDataset

SIZE = 32


def load(limit: int | None = None) -> ImageDataset:
    """Return 1797 digits of 8×8 pixels at 32×32; a quarter, always the same, is for testing."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    images = F.interpolate(images, size=SIZE, mode="bicubic")
    pixels = (255 * images).round().clamp(0, 255).to(torch.uint8)
    labels = torch.tensor(digits.target)
    train, test, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=0.25, stratify=labels, random_state=0
    )
    return ImageDataset(
        DecodedImages(train[:limit], train_labels[:limit]),
        DecodedImages(test, test_labels),
        classes=tuple(str(digit) for digit in range(10)),
    )
