"""The axes of a run's data: what each is called, how densely it is sampled, in which unit."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diffstride.text import short

FRAMES = 100.0  # of a spectrogram in a second


class Axis(NamedTuple):
    """An axis of the inputs of a network; frequencies along it are shares of ``rate``, in unit."""

    name: str
    rate: float
    unit: str


PIXELS, SAMPLES = "cycles per pixel", "cycles per sample"
OF_SOUND: tuple[Axis, ...] = (
    Axis("time", FRAMES, "Hz"),
    Axis("frequency", 1.0, "cycles per mel channel"),
)


def data_axes(
    facts: Mapping[str, Any], kind: str = "images", axes: int | None = None
) -> tuple[Axis, ...]:
    """Return the axes of data of which data.json has these facts.

    Where runs of earlier versions do not say something, it is what data of their kind have.

    Args:
        facts: of data.json; axes, sampling_rate and units may all be missing.
        kind: of the data: images, audio or signals.
        axes: how many there are, where the facts have no size either.

    >>> data_axes({"size": [3, 32, 32]})[0]
    Axis(name='height', rate=1.0, unit='cycles per pixel')
    >>> data_axes({"size": [1, 100, 64], "sampling_rate": [100, 1]}, "audio")[1]
    Axis(name='frequency', rate=1.0, unit='cycles per mel channel')
    """
    count = len(facts["size"]) - 1 if "size" in facts else axes or 2
    names = facts.get("axes") or ()
    # Spectrograms were the first data whose axes had names.
    is_sound = kind == "audio" or list(names) == [axis.name for axis in OF_SOUND]
    if is_sound and count == len(OF_SOUND):
        usual = OF_SOUND
    elif count == 1:
        usual = (Axis("time", 1.0, "Hz" if "sampling_rate" in facts else SAMPLES),)
    else:
        usual = tuple(Axis(name, 1.0, PIXELS) for name in ("depth", "height", "width")[-count:])
    rates = facts.get("sampling_rate") or [axis.rate for axis in usual]
    units = facts.get("units") or [axis.unit for axis in usual]
    names = names or [axis.name for axis in usual]
    found = zip(names, rates, units, strict=True)
    return tuple(Axis(str(name), float(rate), str(unit)) for name, rate, unit in found)


def image_axes(spacing: Sequence[float] | None = None) -> tuple[Axis, ...]:
    """Return the axes of images, of which pixels may be so many millimetres apart.

    >>> image_axes((0.5, 0.25))[1]
    Axis(name='width', rate=4.0, unit='cycles per mm')
    """
    if spacing is None:
        return data_axes({"size": (1, 1, 1)})
    each = (*spacing, *spacing)[:2]
    return tuple(
        Axis(n, 1 / mm, "cycles per mm") for n, mm in zip(("height", "width"), each, strict=True)
    )


def as_facts(axes: Sequence[Axis]) -> dict[str, list[Any]]:
    """Return axes as data.json has them."""
    names, rates, units = map(list, zip(*axes, strict=True))
    return {"axes": names, "sampling_rate": rates, "units": units}


def in_units(values: Sequence[float], units: Sequence[str]) -> str:
    """Return a number for each axis with its unit, which is said once if all have the same.

    >>> in_units((25, 0.25), ("Hz", "cycles per mel channel"))
    '25 Hz × 0.25 cycles per mel channel'
    >>> in_units((0.25, 0.2), ("cycles per pixel",) * 2)
    '0.25 × 0.2 cycles per pixel'
    """
    texts = [short(value) for value in values]
    if len(set(units)) == 1:
        return f"{' × '.join(texts)} {units[0]}"
    return " × ".join(f"{text} {unit}" for text, unit in zip(texts, units, strict=True))
