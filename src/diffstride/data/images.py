"""Labelled images: reading them, whatever they come as, and saying what is wrong with them."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

IMAGE_NAMES = ("image", "img", "png", "jpg")
LABEL_NAMES = ("label", "labels", "fine_label", "class")


class DataError(ValueError):
    """Something is wrong with the data; the message says what and where."""


@dataclass(frozen=True)
class Split:
    """Images (N, channels, height, width) as bytes, and the class of each."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Images:
    train: Split
    test: Split
    classes: tuple[str, ...]
    skipped: int = 0
    """How many images could not be read and were left out."""

    @property
    def size(self) -> tuple[int, ...]:
        """Of one image: (channels, height, width)."""
        return tuple(self.train.images.shape[1:])


def load(
    path: str,
    *,
    image_size: int | None = None,
    limit: int | None = None,
    skip_corrupt: bool = False,
) -> Images:
    """Read a training and a test set into memory.

    Args:
        path: a folder of parquet files, a folder with ``train`` and ``test`` folders of images by
            class, or the name of a dataset on the Hugging Face hub.
        image_size: the side all images are brought to, without changing their proportions: the
            shorter side is scaled to it and the middle is cut out.
        limit: how many training images are read at most.
        skip_corrupt: leave out images that can't be read, and count them.

    Raises:
        DataError: for a missing folder, an image that can't be read (which one), sizes that
            differ, a label out of range, or fewer than two classes.
    """
    splits = _open(path)
    classes = _classes(splits["train"], path)
    reader = _Reader(image_size, skip_corrupt, len(classes))
    train = reader.read(splits["train"], "train", limit)
    test = reader.read(splits["test"], "test", None)
    channels = max(train[0].shape[1], test[0].shape[1])
    if train[0].shape[2:] != test[0].shape[2:]:
        raise DataError(
            f"{path}: training images are {_shape(train[0])} and test images {_shape(test[0])}: "
            f"bring them to one size with --data.image-size"
        )
    train_set, test_set = (
        Split(images.expand(-1, channels, -1, -1), labels) for images, labels in (train, test)
    )
    return Images(train_set, test_set, classes, reader.skipped)


def _shape(images: Tensor) -> str:
    return "×".join(str(n) for n in images.shape[2:])


def _open(path: str) -> dict[str, Any]:
    """The training and test set as Hugging Face datasets, images not decoded yet."""
    import datasets

    datasets.disable_progress_bars()
    folder = Path(path).expanduser()
    if folder.is_dir():
        files = sorted(folder.glob("**/*.parquet"))
        if files:
            named = {
                split: [str(f) for f in files if f.name.startswith(prefixes)]
                for split, prefixes in (("train", "train"), ("test", ("test", "validation")))
            }
            if not all(named.values()):
                raise DataError(
                    f"{path} must have parquet files whose names begin with train and with test "
                    f"or validation, got {', '.join(f.name for f in files)}"
                )
            opened = datasets.load_dataset("parquet", data_files=named)
        else:
            parts = {name: folder / name for name in ("train", "test")}
            if not all(part.is_dir() for part in parts.values()):
                raise DataError(
                    f"{path} has neither parquet files nor the folders train and test, with a "
                    f"folder of images for each class"
                )
            opened = datasets.load_dataset("imagefolder", data_dir=str(folder))
    elif re.fullmatch(r"[\w-]+(/[\w.-]+)?", path):
        try:
            opened = datasets.load_dataset(path)
        except Exception as error:
            raise DataError(
                f"{path} is no folder here, and could not be had from the hub: {error}"
            ) from error
    else:
        raise DataError(f"{path} does not exist: --data.path is a folder or a dataset on the hub")
    test = next((name for name in ("test", "validation", "val") if name in opened), None)
    if "train" not in opened or test is None:
        raise DataError(f"{path} must have a train and a test split, got {', '.join(opened)}")
    return {"train": opened["train"], "test": opened[test]}


def _columns(dataset: Any) -> tuple[str, str]:
    import datasets

    features = dataset.features
    image = [name for name, f in features.items() if isinstance(f, datasets.Image)]
    image += [name for name in IMAGE_NAMES if name in features]
    label = [name for name, f in features.items() if isinstance(f, datasets.ClassLabel)]
    label += [name for name in LABEL_NAMES if name in features]
    if not image or not label:
        raise DataError(
            f"the data must have a column of images ({', '.join(IMAGE_NAMES)}) and one of labels "
            f"({', '.join(LABEL_NAMES)}), got {', '.join(features)}"
        )
    return image[0], label[0]


def _classes(dataset: Any, path: str) -> tuple[str, ...]:
    """The names of the classes: from the data, from classes.json beside it, or just numbers."""
    _, column = _columns(dataset)
    names = getattr(dataset.features[column], "names", None)
    listed = Path(path).expanduser() / "classes.json"
    if names is None and listed.is_file():
        names = json.loads(listed.read_text())
    if names is None:
        names = range(max(dataset[column], default=-1) + 1)
    classes = tuple(str(name) for name in names)
    if len(classes) < 2:
        raise DataError(f"{path} must have at least 2 classes, got {len(classes)}")
    return classes


class _Reader:
    """Decodes images one by one and keeps count of those that it could not."""

    def __init__(self, image_size: int | None, skip_corrupt: bool, classes: int) -> None:
        self.image_size = image_size
        self.skip_corrupt = skip_corrupt
        self.classes = classes
        self.skipped = 0

    def read(self, dataset: Any, split: str, limit: int | None) -> tuple[Tensor, Tensor]:
        import datasets

        image, label = _columns(dataset)
        if limit is not None:
            dataset = dataset.select(range(min(limit, len(dataset))))
        dataset = dataset.cast_column(image, datasets.Image(decode=False))
        images: list[Tensor] = []
        labels: list[int] = []
        first = ""
        for name, data, target in self._rows(dataset, image, label, split):
            if not 0 <= target < self.classes:
                raise DataError(
                    f"{name}: labels must be from 0 to {self.classes - 1}, got {target}"
                )
            try:
                pixels = self._decode(data)
            except Exception as error:
                if not self.skip_corrupt:
                    raise DataError(
                        f"{name} can't be read as an image ({error}): remove it, or leave out such "
                        f"images with --data.skip-corrupt True"
                    ) from error
                self.skipped += 1
                continue
            if images and pixels.shape[1:] != images[0].shape[1:]:
                raise DataError(
                    f"images differ in size, {first} is {_shape(images[0][None])} and {name} "
                    f"{_shape(pixels[None])}: bring them to one with --data.image-size"
                )
            first = first or name
            images.append(pixels)
            labels.append(target)
        if not images:
            raise DataError(f"there is no image to read in the {split} set")
        channels = max(x.shape[0] for x in images)
        return (
            torch.stack([x.expand(channels, -1, -1) for x in images]),
            torch.tensor(labels),
        )

    def _rows(
        self, dataset: Any, image: str, label: str, split: str
    ) -> Iterator[tuple[str, bytes | None, int]]:
        for i, row in enumerate(dataset):
            cell = row[image]
            name = cell["path"] or f"row {i} of the {split} set"
            data = cell["bytes"]
            if data is None and cell["path"]:
                data = Path(cell["path"]).read_bytes()
            yield name, data, row[label]

    def _decode(self, data: bytes | None) -> Tensor:
        import numpy as np
        from PIL import Image

        picture: Any = Image.open(io.BytesIO(data or b""))
        picture = picture.convert("L" if picture.mode in ("1", "L", "I;16") else "RGB")
        if self.image_size is not None:
            side = self.image_size
            scale = side / min(picture.size)
            width, height = (max(side, round(n * scale)) for n in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BICUBIC)
            left, top = (width - side) // 2, (height - side) // 2
            picture = picture.crop((left, top, left + side, top + side))
        pixels = torch.from_numpy(np.array(picture))
        return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)
