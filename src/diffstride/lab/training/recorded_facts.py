"""What a recorder is told, as the files of a run have it; or an error that says what is wrong."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from diffstride.core.arguments import per_axis
from diffstride.lab.runs.axes import as_facts, data_axes
from diffstride.lab.runs.documents import STRIDE_COLUMNS
from diffstride.lab.training.stride_rows import MMACS, PENALTY

OURS = (*STRIDE_COLUMNS, PENALTY, MMACS)
"""The columns that a recorder fills by itself: those of metrics.csv, and those of strides.csv."""

UNKNOWN_UNIT = "cycles per unit"
"""Of cut-offs, where a sampling rate has no unit."""


def check_installed() -> None:
    """Raise a ModuleNotFoundError that says what to install, unless it is there."""
    try:
        import yaml  # noqa: F401
    except ModuleNotFoundError as error:
        advice = "Recorder needs yaml: pip install 'diffstride[report]'"
        raise ModuleNotFoundError(advice, name=error.name) from error


def input_size(example: Tensor | Sequence[int]) -> tuple[int, ...]:
    """Return the size of one example, from a batch of some or from itself."""
    size = tuple(example.shape[1:]) if isinstance(example, Tensor) else tuple(example)
    if not 2 <= len(size) <= 4:
        expected = "a batch for the network, or (channels, *spatial) of one example, with 1 to 3"
        got = f"a batch of examples of {size}" if isinstance(example, Tensor) else f"{size}"
        raise ValueError(f"example must be {expected} spatial axes, got {got}")
    return size


def facts(
    size: tuple[int, ...] | None,
    rate: float | Sequence[float] | None,
    units: str | Sequence[str] | None,
    names: Sequence[str] | None,
) -> tuple[dict[str, Any], tuple[float, ...]]:
    """Return what data.json says of the axes, and the rate of each."""
    if rate is None and units is not None:
        raise ValueError("units are those of a sampling_rate: give one")
    if size is None:
        if rate is not None or names is not None:
            raise ValueError("sampling_rate, units and axes are of an example: give one")
        return {}, ()
    count, facts = len(size) - 1, {"size": list(size)}
    usual = as_facts(data_axes(facts))
    given: dict[str, Any] = {} if names is None else {"axes": list(names)}
    if rate is not None:
        units = UNKNOWN_UNIT if units is None else units
        rates = given["sampling_rate"] = list(per_axis(rate, count, "sampling_rate"))
        if not all(0 < each < math.inf for each in rates):
            raise ValueError(f"sampling_rate must be above 0 on each axis, got {rate}")
        given["units"] = [units] * count if isinstance(units, str) else list(units)
    for name, values in given.items():
        if len(values) != count or not all(isinstance(x, str | float) for x in values):
            raise ValueError(f"{name} must be one for each of {count} axes, got {values}")
    axes = usual | given
    return facts | axes, tuple(axes["sampling_rate"])


def known(
    epochs: int | None, judged_by: str | None, settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return what config.yaml says of a training, and not of its network."""
    if epochs is not None and (type(epochs) is not int or epochs < 1):
        raise ValueError(f"epochs must be a whole number of at least 1, got {epochs!r}")
    if not isinstance(judged_by, str | None):
        raise TypeError(f"judged_by must be the name of a metric, got {judged_by!r}")
    if not isinstance(settings, Mapping | None):
        raise TypeError(f"settings must be a mapping of names to values, got {settings!r}")
    trainer = {} if epochs is None else {"epochs": epochs}
    return {"trainer": trainer, "judged_by": judged_by, "settings": plain(settings or {})}


def optimizers(given: Optimizer | Sequence[Optimizer]) -> tuple[Optimizer, ...]:
    """Return all optimisers that were given."""
    several = tuple(given) if isinstance(given, list | tuple) else (given,)
    if wrong := [each for each in several if not isinstance(each, Optimizer)]:
        raise TypeError(
            f"optimizer must be one of torch.optim, or a list of them, got {wrong[0]!r}"
        )
    return several


def number(name: str, value: Any) -> float:
    """Return a metric as a number."""
    if name in OURS:
        raise ValueError(
            f"{name} is a column that the recorder fills: give the metric another name"
        )
    if not name.isprintable() or not name:
        raise ValueError(f"the name of a metric must be printable characters, got {name!r}")
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"{name} must be a number, got {type(value).__name__}: {error}") from error


def plain(settings: Any) -> Any:
    """Return settings as YAML has them; what it has not, as words."""
    if isinstance(settings, Mapping):
        return {str(name): plain(value) for name, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [plain(value) for value in settings]
    return (
        settings if settings is None or type(settings) in (str, int, float, bool) else str(settings)
    )
