"""The axes of a run's data: what each is called, how densely it is sampled, in which unit."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Axis(NamedTuple):
    """An axis of the inputs of a network; frequencies along it are shares of ``rate``, in unit."""

    name: str
    rate: float
    unit: str


OF_SOUND = (Axis("time", 100.0, "Hz"), Axis("frequency", 1.0, "cycles per mel channel"))


def data_axes(
    facts: Mapping[str, Any], kind: str = "images", axes: int | None = None
) -> tuple[Axis, ...]:
    """Return the axes of data of which data.json has these facts.

    Where it has none, they are what data of this kind have; ``axes`` says how many there are where
    there is no size either.

    >>> data_axes({"size": [3, 32, 32]})[0]
    Axis(name='height', rate=1.0, unit='cycles per pixel')
    """
    count = len(facts["size"]) - 1 if "size" in facts else axes or 2
    names = list(facts.get("axes") or ())
    usual: tuple[Axis, ...]
    if count == 2 and (kind == "audio" or names == [axis.name for axis in OF_SOUND]):
        usual = OF_SOUND
    elif count == 1:
        usual_unit = "Hz" if "sampling_rate" in facts else "cycles per sample"
        usual = (Axis("time", 1.0, usual_unit),)
    else:
        names_of_images = ("depth", "height", "width")[-count:]
        usual = tuple(Axis(name, 1.0, "cycles per pixel") for name in names_of_images)
    rates = facts.get("sampling_rate") or [axis.rate for axis in usual]
    units = facts.get("units") or [axis.unit for axis in usual]
    found = zip(names or [axis.name for axis in usual], rates, units, strict=True)
    return tuple(Axis(name, float(rate), unit) for name, rate, unit in found)
