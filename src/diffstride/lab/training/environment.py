"""What a run says of the machine and the versions it was made with."""

import os
import platform
import subprocess
import time
from typing import Any

import torch

import diffstride


def describe_environment(seed: int | None = None) -> dict[str, Any]:
    """Return the versions, machine, seed, commit and time of a run that begins now."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        git = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        commit = git.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    return {
        "diffstride": diffstride.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        **({} if seed is None else {"seed": seed}),
        "commit": commit,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
