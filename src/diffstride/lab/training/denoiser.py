"""A network that takes noise from images, for Lightning."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffstride.lab.data.noise import without
from diffstride.lab.runs.config import Config
from diffstride.lab.runs.scores import NOISY
from diffstride.lab.training.image_quality import psnr, ssim
from diffstride.lab.training.learner import Learner
from diffstride.lab.training.processes import sum_over_processes


class Denoiser(Learner):
    """Learns which noise is in images, and is judged by what is left without it.

    The loss is the mean squared error of pixels, of values from 0 to 1. Noisy images are judged as
    well: the measures of the same name that begin with ``noisy``.

    Args:
        model: makes noise, in the units of its input, of noisy images.
        config, input_size: as for any learner.
        mean, std: of each channel, by which inputs were normalised.
    """

    measures: ClassVar = {
        "train": ("loss", "psnr"),
        "test": ("loss", "psnr", "ssim", f"{NOISY}_psnr", f"{NOISY}_ssim"),
    }

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        input_size: tuple[int, ...],
        mean: Tensor,
        std: Tensor,
    ) -> None:
        super().__init__(model, config, input_size)
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, values.reshape(1, -1, 1, 1), persistent=False)
        self.shown = torch.empty(0, dtype=torch.long)
        """The numbers of test images whose restored form is kept in :attr:`restored`."""
        self.restored = torch.empty(0)

    def restore(self, inputs: Tensor) -> Tensor:
        """Return clean images, of values from 0 to 1, of normalised noisy ones."""
        return without(inputs, self.model(inputs), self.mean, self.std)

    def training_step(self, batch: Any, step: int) -> Tensor:
        inputs, clean, _ = batch
        restored = self.restore(inputs)
        losses = squared_errors(restored, clean)
        self.count("train", "", len(clean), losses.sum(), psnr(restored.detach(), clean).sum())
        return self.regularised(losses.mean())

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        size = (len(self.shown), *self.input_size)
        self.restored = torch.zeros(size, device=self.device)

    def validation_step(self, batch: Any, step: int) -> None:
        inputs, clean, numbers = batch
        restored, noisy = self.restore(inputs), inputs * self.std + self.mean
        of_each = psnr(restored, clean)
        self.of_each.setdefault("", []).append(of_each)
        others = (ssim(restored, clean), psnr(noisy, clean), ssim(noisy, clean))
        measures = (squared_errors(restored, clean), of_each, *others)
        self.count("test", "", len(clean), *(values.sum() for values in measures))
        for place, number in enumerate(self.shown.tolist()):
            for image in restored[numbers == number]:
                self.restored[place] = image

    def on_validation_epoch_end(self) -> None:
        sum_over_processes(self.restored)  # of which each has restored some


def squared_errors(images: Tensor, clean: Tensor) -> Tensor:
    """Return the mean squared error of each image."""
    return (images - clean).square().mean((1, 2, 3))
