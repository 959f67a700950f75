"""Checkpoints that notice when they are damaged: each ends with its own digest."""

import io
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from diffstride.files import seal, unseal, write
from diffstride.lab.runs.documents import RunError
from diffstride.lab.runs.run_folder import Run


class SealedCheckpoints(TorchCheckpointIO):
    """Makes Lightning write checkpoints atomically, and refuse damaged ones."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write(Path(path), seal(content.getvalue()))

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint, after its digest was checked; nothing in it is executed.

    Raises:
        RunError: if it is damaged, or holds more than numbers.
    """
    try:
        content = unseal(path.read_bytes())
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "state_dict" not in state:
            raise ValueError("it holds no state")
    except Exception as error:  # whatever it is, the checkpoint can't be used
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path} can't be read ({first})") from error
    return state


def newest_checkpoint(run: Run) -> tuple[Path, dict[str, Any]] | tuple[None, None]:
    """Return the last checkpoint that can be read, and where it is; None if there are none yet.

    For each one that can't be read, a line on stderr says why.

    Raises:
        RunError: if there are some, and none can be read.
    """
    files = run.checkpoint_files()
    for path in files:
        try:
            return path, read_checkpoint(path)
        except RunError as error:
            print(f"{error}: trying the one before", file=sys.stderr, flush=True)
    if files:
        raise RunError(
            f"{run.folder}: none of its {len(files)} checkpoints can be read, and nothing was "
            f"changed: put back a copy of one, or train the run anew under another --name"
        )
    return None, None
