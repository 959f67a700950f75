"""What a network costs at any strides and any input size, from one run of it."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.analysis.cost_record import Cost, LayerCost
from diffstride.analysis.network_trace import NetworkTrace
from diffstride.analysis.observing import cloned, observe
from diffstride.analysis.restoring import check_runnable, unwrapped
from diffstride.analysis.size_program import Pick
from diffstride.analysis.uses import UNITS, FunctionAmount, Total, Unit, Use, resolved
from diffstride.core import arguments
from diffstride.layers.diffstride import DiffStrideNd
from diffstride.layers.resizer import Counted, learned_strides, resizers

_TRACES = 100
"""How many are kept of a network that has to be run for many sizes."""


class _Evaluation:
    """One trace, and what it needs to be evaluated quickly."""

    def __init__(self, trace: NetworkTrace) -> None:
        self.trace, self.program = trace, trace.program
        self._totals: dict[Any, Total] = {}
        steps = enumerate(self.program.steps, self.program.given)
        self.picks = [(place, step) for place, step in steps if isinstance(step, Pick)]
        """Where the sizes stand that layers with strides make."""

    def forget(self) -> None:
        """Compute everything again from now on."""
        for _, pick in self.picks:
            pick.site.forget()
        for use in self.trace.uses:
            if isinstance(use.macs, FunctionAmount):
                use.macs.forget()
        self._totals.clear()

    def total(self, unit: str | Unit) -> Total:
        if unit not in self._totals:
            counted: Unit = UNITS[unit] if isinstance(unit, str) else unit
            self._totals[unit] = Total(counted, self.trace.uses)
        return self._totals[unit]


class CostModel:
    """What a network costs, for any strides and input size, without running it again.

    The network is run once, as :func:`diffstride.cost` does. From then on every size is a formula
    in the input's size and the strides, and so is what the network costs: evaluating it takes
    microseconds. Where a network computes sizes in a way that can't be followed (it branches on a
    size, or loops over one), the formulas hold for the sizes that it looked at, and it is run again
    for others: what comes out is exact in any case. The network is left as it was, always. Strides
    and smoothness are read anew each time; one whose layers are others needs another model.

    Costs are in a unit: ``"macs"``, ``"activations"``, ``"bytes"``, or a function that says what
    one use of a layer costs (``diffstride.analysis.uses``). Bytes are what autograd keeps from the
    forward pass for the backward pass, tensor by tensor, each once: the inputs of convolutions and
    normalisations, the outputs of activation functions, indices of poolings, the spectra of learned
    strides. Parameters, the network's input, and vectors such as the statistics of a normalisation
    are left out, as is what ``diffstride.analysis.saved_tensors`` does not name.

    Args:
        model: any module that takes one tensor.
        input_size: of one example, (channels, *spatial).

    Raises:
        ValueError: if the input size is none, or the network can't be run.

    >>> from diffstride import DiffStride2d
    >>> network = nn.Sequential(DiffStride2d(2.0, smoothness=1.0), nn.Conv2d(8, 8, 3, padding=1))
    >>> model = CostModel(network, (8, 32, 32))
    >>> print(model.at())
    417 k MACs, 5.18 k activations, 586 parameters
    >>> print(model.at({"0": (4.0, 2.0)}, (8, 64, 64)))
    1.26 M MACs, 9.79 k activations, 586 parameters
    >>> model.value("macs", {"0": (4.0, 4.0)})
    165120
    >>> value, slopes = model.gradient("macs")
    >>> value, slopes
    (417024, {'0': (-185344.0, -119808.0)})
    """

    def __init__(self, model: nn.Module, input_size: Sequence[int]) -> None:
        self.input_size = _checked_size(input_size)
        self._whole, self.model = model, unwrapped(model)
        check_runnable(self.model)
        self.layers: dict[str, DiffStrideNd] = learned_strides(self.model)
        """The layers that have a stride, by name; in their order, strides are given flat."""
        self._resizers = [layer for _, layer in resizers(self.model)]
        self._rules = [layer.rule for layer in self._resizers]
        self._evaluations: list[_Evaluation] = []
        self._find(self.given())

    def given(
        self,
        strides: Mapping[str, float | Sequence[float]] | None = None,
        input_size: Sequence[int] | None = None,
    ) -> list[float]:
        """Return the input size and all strides in a row; those in use unless others are given."""
        size = self.input_size if input_size is None else _checked_size(input_size)
        return [*size, *(s for each in self._strides(strides).values() for s in each)]

    def _strides(
        self, strides: Mapping[str, float | Sequence[float]] | None
    ) -> dict[str, tuple[float, ...]]:
        found = {name: layer.strides for name, layer in self.layers.items()}
        for name, numbers in (strides or {}).items():
            if name not in found:
                raise ValueError(
                    f"strides must be given by the names of layers that have some, "
                    f"{', '.join(map(repr, found)) or 'of which the model has none'}; got {name!r}"
                )
            found[name] = arguments.per_axis(numbers, self.layers[name].axes, f"stride of {name}")
            arguments.check_strides(found[name], f"stride of {name}")
        return found

    def at(
        self,
        strides: Mapping[str, float | Sequence[float]] | None = None,
        input_size: Sequence[int] | None = None,
        timings: Unit | None = None,
    ) -> Cost:
        """Return what the network would cost with other strides, by name, or another input size.

        Strides that are not given are those that the network has now. With timings, each use and
        the whole have their milliseconds.
        """
        evaluation, numbers = self._find(self.given(strides, input_size))
        uses = []
        for use in evaluation.trace.uses:
            if use.layer is None:
                continue
            layer = LayerCost(
                name=use.name,
                layer=use.layer,
                input_size=tuple(resolved(use.input_sizes[2:], numbers)),
                output_size=tuple(resolved(use.made, numbers)),
                macs=use.macs.of(numbers),
                activations=use.activations.of(numbers),
                bytes=sum(amount.of(numbers) for amount in use.saved),
                ms=None if timings is None else sum(x.of(numbers) for x in timings(use)),
            )
            uses.append(layer)
        return Cost(
            macs=sum(use.macs for use in uses),
            activations=sum(use.activations for use in uses),
            parameters=sum(parameter.numel() for parameter in self._whole.parameters()),
            layers=tuple(uses),
            bytes=evaluation.total("bytes").of(numbers),
            ms=None if timings is None else evaluation.total(timings).of(numbers),
        )

    def value(
        self,
        unit: str | Unit = "macs",
        strides: Mapping[str, float | Sequence[float]] | None = None,
        input_size: Sequence[int] | None = None,
    ) -> Any:
        """Return the cost in a unit."""
        return self.value_at(self.given(strides, input_size), unit)

    def gradient(
        self,
        unit: str | Unit = "macs",
        strides: Mapping[str, float | Sequence[float]] | None = None,
        input_size: Sequence[int] | None = None,
    ) -> tuple[Any, dict[str, tuple[float, ...]]]:
        """Return the cost in a unit, and how it changes with each stride of each layer.

        The change is that of sizes N/S + 2R that need not be whole nor stop at N: it leads down
        everywhere, also where a small step changes no size.
        """
        value, slopes = self.gradient_at(self.given(strides, input_size), unit)
        found, numbers = {}, iter(slopes)
        for name, layer in self.layers.items():
            found[name] = tuple(next(numbers) for _ in range(layer.axes))
        return value, found

    def value_at(self, given: Sequence[float], unit: str | Unit = "macs") -> Any:
        """Return the cost for an input size and all strides in a row, as :meth:`given` has them."""
        evaluation, numbers = self._find(given)
        return evaluation.total(_known(unit)).of(numbers)

    def gradient_at(
        self, given: Sequence[float], unit: str | Unit = "macs"
    ) -> tuple[Any, list[float]]:
        """Return the same, and how it changes with the strides, in a row."""
        evaluation, numbers = self._find(given)
        total = evaluation.total(_known(unit))
        slopes = evaluation.program.gradient(numbers, total.slopes(numbers))
        return total.of(numbers), slopes[evaluation.trace.axes :]

    def samples_at(self, given: Sequence[float]) -> dict[int, float]:
        """Return by how many samples a size changes when the logarithm of a stride grows by 1.

        The strides are known by their places in what is given.
        """
        evaluation, numbers = self._find(given)
        found: dict[int, float] = {}
        for _, pick in evaluation.picks:
            for place, slope in pick.slopes(numbers):
                if evaluation.trace.axes <= place < evaluation.program.given:
                    found[place] = max(found.get(place, 0.0), abs(slope * numbers[place]))
        return found

    def made_at(self, given: Sequence[float]) -> dict[int, list[int]]:
        """Return the sizes that are made with each stride, by its place in what is given."""
        evaluation, numbers = self._find(given)
        found: dict[int, list[int]] = {}
        for place, pick in evaluation.picks:
            if pick.site.strides:
                found.setdefault(pick.site.strides[pick.axis], []).append(numbers[place])
        return found

    def uses(self) -> list[Use]:
        """Return everything that the network does to maps, in order: layers and operations."""
        return self.uses_at(self.given())[0]

    def uses_at(self, given: Sequence[float]) -> tuple[list[Use], list[Any]]:
        """Return the same for an input size and strides, and what amounts are functions of."""
        evaluation, numbers = self._find(given)
        return evaluation.trace.uses, numbers

    def _find(self, given: Sequence[float]) -> tuple[_Evaluation, list[Any]]:
        """Return a trace that holds for a size and strides, and all sizes; make it if need be."""
        rules = [layer.rule for layer in self._resizers]
        if not all(map(operator.is_, rules, self._rules)):  # a smoothness may change in training
            self._rules = rules
            for evaluation in self._evaluations:
                evaluation.forget()
        for i, evaluation in enumerate(self._evaluations):
            if evaluation.program.given == len(given):
                numbers = evaluation.program.run(given)
                if numbers is not None:
                    if i:  # what was needed last is found first
                        self._evaluations.insert(0, self._evaluations.pop(i))
                    return evaluation, numbers
        evaluation = _Evaluation(self._trace(given))
        self._evaluations = [evaluation, *self._evaluations[: _TRACES - 1]]
        return evaluation, evaluation.program.traced

    def _trace(self, given: Sequence[float]) -> NetworkTrace:
        """Run one example through the network, with strides that may not be its own.

        Nothing is computed: tensors have no values (the meta device of torch). A network that takes
        sizes as plain numbers alone is run again with these; one that makes tensors itself or looks
        at values, with zeros.
        """
        model, axes = self.model, [layer.axes for layer in self.layers.values()]
        size = tuple(int(n) for n in given[: len(given) - sum(axes)])
        numbers = iter(given[len(size) :])
        strides = {x: [next(numbers) for _ in range(x.axes)] for x in self.layers.values()}
        kinds = (Counted, _ConvNd, nn.Linear)
        counted = [
            m for m in model.modules() if isinstance(m, kinds) and getattr(m, "counts", True)
        ]
        tensors = [*model.parameters(), *model.buffers()]
        like = next((x for x in tensors if x.is_floating_point()), torch.zeros(()))
        without_values: Callable[[Tensor], Tensor] = lambda x: x.detach().to("meta")  # noqa: E731
        ways = [("meta", without_values, True), ("meta", without_values, False)]
        if like.device.type != "meta":
            ways.append((like.device.type, cloned, False))
        for device, new, is_followed in ways:
            trace = NetworkTrace(model, size, strides, is_followed)
            x = torch.zeros(1, *size, device=device, dtype=like.dtype)

            def replaced(x: Tensor, new: Any = new, trace: NetworkTrace = trace) -> Tensor:
                return trace.constant(new(x))

            try:
                observe(model, x, trace, layers=counted, new=replaced, mode=trace.mode)
                trace.end()
                return trace
            except Exception:  # whatever a network says of tensors without values
                if (device, new, is_followed) == ways[-1]:
                    raise
        raise AssertionError


def _known(unit: str | Unit) -> str | Unit:
    if isinstance(unit, str):
        arguments.check_choice(unit, UNITS, "unit")
    return unit


def _checked_size(input_size: Sequence[int]) -> tuple[int, ...]:
    if len(input_size) < 2 or not all(isinstance(n, int) and n >= 1 for n in input_size):
        raise ValueError(
            f"input_size must be (channels, *spatial) of one example, got {tuple(input_size)}"
        )
    return tuple(input_size)
