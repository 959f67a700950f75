"""Cut-offs as frequencies of a network's input: of one layer, and of all layers up to it."""

from collections.abc import Iterable, Sequence


def cutoff(size: float, stride: float, whole: int, rate: float = 1.0) -> float:
    """Return up to which frequency a stride lets pass ``size`` samples, left of ``whole``.

    It is in the unit of the rate at which the whole was sampled. A stride below 1, which makes maps
    larger, lets pass all that there is.

    >>> cutoff(80, 2.0, 160, rate=16_000)
    2000.0
    """
    return size * rate / (2 * max(1.0, stride) * whole)


def lowest_so_far(layers: Iterable[Sequence[float]]) -> list[tuple[float, ...]]:
    """Return what is left along each axis behind each of some layers, by their own cut-offs.

    What one layer took away none behind it can bring back.

    >>> lowest_so_far([(25.0, 0.25), (30.0, 0.2)])
    [(25.0, 0.25), (25.0, 0.2)]
    """
    found: list[tuple[float, ...]] = []
    for own in layers:
        before = found[-1] if found else own
        found.append(tuple(map(min, own, before)))
    return found
