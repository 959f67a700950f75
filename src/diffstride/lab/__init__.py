"""The laboratory: everything that trains, sweeps and reports; it needs the extras.

Three names are for trainings of one's own: :class:`Recorder` for a loop in plain PyTorch,
:class:`StrideMonitor` for Lightning, :class:`StrideCallback` for the ``Trainer`` of transformers.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffstride.lab.training.hugging_face import StrideCallback as StrideCallback
    from diffstride.lab.training.recorder import Recorder as Recorder
    from diffstride.lab.training.stride_monitor import StrideMonitor as StrideMonitor

_HOMES = {
    "Recorder": "recorder",
    "StrideCallback": "hugging_face",
    "StrideMonitor": "stride_monitor",
}
"""In which module of ``training`` each name lives."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: nobody needs Lightning and transformers at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'diffstride.lab' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"diffstride.lab.training.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
