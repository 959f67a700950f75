"""The processes that share a training: their number, and sums over all of them."""

import torch
from torch import Tensor, distributed


def wide(device: torch.device) -> torch.dtype:
    """Return double precision, where a device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def process() -> tuple[int, int]:
    """Return the number of this process, and how many share the training."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def sum_over_processes(values: Tensor) -> None:
    """Add up a tensor over all processes, in place."""
    if process()[1] > 1:
        distributed.all_reduce(values)
