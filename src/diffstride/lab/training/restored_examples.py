"""Test images that a run keeps: clean, with noise, and as its network restores them."""

import base64
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from diffstride.lab.data.noise import NoisyBatches
from diffstride.lab.data.pictures import to_png
from diffstride.lab.runs.documents import write_json
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training.denoiser import Denoiser
from diffstride.lab.training.examples import first_of_classes
from diffstride.lab.training.image_quality import psnr
from diffstride.lab.training.preparation import Prepared


class RestoredExamples(Callback):
    """Writes ``restored.json`` of a run after each epoch: a test image of each of three classes."""

    def __init__(self, run: Run, prepared: Prepared) -> None:
        module, test = prepared.module, prepared.test
        assert isinstance(module, Denoiser) and isinstance(test, NoisyBatches)
        self.run, self.module = run, module
        module.shown = torch.tensor(first_of_classes(test.split.labels))
        self.noisy, self.clean = test.pair(module.shown)
        labels = test.split.labels[module.shown].tolist()
        self.names = [prepared.facts["classes"][label] for label in labels]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        restored = self.module.restored.cpu()
        values = zip(psnr(self.noisy, self.clean), psnr(restored, self.clean), strict=True)
        images = zip(self.names, values, self.clean, self.noisy, restored, strict=True)
        written: list[dict[str, Any]] = [
            {
                "label": name,
                "noisy_psnr": before.item(),
                "psnr": after.item(),
                **dict(zip(("clean", "noisy", "restored"), map(_letters, three), strict=True)),
            }
            for name, (before, after), *three in images
        ]
        content = {"epoch": trainer.current_epoch + 1, "images": written}
        write_json(self.run.restored_file, content, indent=None)


def _letters(image: Tensor) -> str:
    """Return an image as a PNG in letters, which JSON may have."""
    return base64.b64encode(to_png(image)).decode()
