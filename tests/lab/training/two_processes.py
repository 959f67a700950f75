"""Twenty steps of a network without batch statistics, in one process or in two.

    python two_processes.py PROCESSES FILE [ragged]

Writes the losses of all steps, over all processes, and the strides at the end of each process, with
the mean gradient of the loss in each.
"""

import json
import sys
from pathlib import Path

import torch
from lightning import Trainer
from torch import nn

from diffstride import DiffStride2d
from diffstride.lab import StrideMonitor
from diffstride.lab.data.batches import ImageBatches
from diffstride.lab.data.images import DecodedImages
from diffstride.lab.runs.config import Config, OptimConfig, TrainerConfig
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.training.classifier import Classifier
from diffstride.lab.training.runner import is_first_process

STEPS = 20


class Recorded(Classifier):
    def on_train_start(self):
        self.losses = []

    def on_train_batch_end(self, outputs, batch, index):
        loss = outputs["loss"].detach() * len(batch[0])
        total = torch.stack([loss, torch.tensor(float(len(batch[0])))])
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(total)
        self.losses.append((total[0] / total[1]).item())


class Ragged(ImageBatches):
    """Other sizes on the other process, as with images that are not brought to one."""

    def __iter__(self):
        for images, labels in super().__iter__():
            yield images[..., : images.shape[-1] - 3 * self.place()[0]], labels


def main():
    processes, file, *ragged = sys.argv[1:]
    torch.set_num_threads(1)
    config = Config(
        data=DataConfig(batch_size=8),
        optim=OptimConfig(lr=0.05, weight_decay=0, schedule="constant", stride_lr=0.25),
        trainer=TrainerConfig(epochs=1, devices=int(processes), accelerator="cpu", strategy="ddp"),
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8 * STEPS, 1, 24, 24), generator=generator, dtype=torch.uint8)
    split = DecodedImages(images, torch.randint(3, (8 * STEPS,), generator=generator))
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        DiffStride2d(2.0, smoothness=2.0),
        nn.Conv2d(6, 6, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )
    module = Recorded(model, config, (1, 24, 24))
    kind = Ragged if ragged else ImageBatches
    batches = kind(
        split,
        8,
        mean=torch.tensor([0.5]),
        std=torch.tensor([0.25]),
        shuffle=True,
    )
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=int(processes),
        strategy="ddp",
        callbacks=[monitor := StrideMonitor()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    batches.place = lambda: (trainer.global_rank, trainer.world_size)
    trainer.fit(module, batches)
    result = {"losses": module.losses, "strides": list(model[2].strides)}
    for name in ("loss_gradient", "loss_gradient_error"):
        result[name] = [row[name] for row in monitor.rows[-2:]]
    Path(f"{file}.{0 if is_first_process() else 1}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
