"""Runs a network once, and writes down its sizes as a program and its work use by use."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from diffstride.analysis.layer_work import LayerWork
from diffstride.analysis.lengths import (
    Length,
    Shape,
    as_read,
    leaves_in,
    product,
    traced,
)
from diffstride.analysis.observing import Observer
from diffstride.analysis.operation_mode import OperationMode, caller
from diffstride.analysis.restoring import check_axes
from diffstride.analysis.rule_call import Call
from diffstride.analysis.saved_tensors import kept_by
from diffstride.analysis.size_program import Constant as ConstantStep
from diffstride.analysis.size_program import Pick, Program, Site
from diffstride.analysis.size_rules import rule_for, tried
from diffstride.analysis.uses import Amount, Sizes, Use
from diffstride.layers.converted import Converted
from diffstride.layers.diffstride import DiffStrideNd, Reading
from diffstride.layers.joined import PLANNED_FORWARDS
from diffstride.layers.resizer import Resizer
from diffstride.layers.size_read import SizeRead

_TELL_NO_SIZE = {
    *("ndim.get", "dim", "dtype.get", "device.get", "layout.get", "requires_grad.get"),
    *("is_cuda.get", "is_meta.get", "is_cpu.get", "is_mps.get", "is_leaf.get", "grad_fn.get"),
    *("is_sparse.get", "is_quantized.get", "is_nested.get", "grad.get", "names.get"),
    *("is_floating_point", "is_complex", "is_contiguous", "get_device", "element_size"),
    *("is_inference", "is_conj", "is_neg", "has_names", "_version.get", "__hash__", "type"),
}
_TELL_VALUES = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")
"""Values may depend on sizes in any way, also those of tensors whose own size never changes."""
_OUR_READERS = ("diffstride.layers.converted", "diffstride.layers.multi_scale")
"""Keep the sizes that they read for layers whose sizes are known here anyway."""


class NetworkTrace(Observer):
    """One run: the program of all sizes, and every use in the order they ran."""

    def __init__(
        self,
        model: nn.Module,
        input_size: Sequence[int],
        strides: Mapping[DiffStrideNd, Sequence[float]],
        is_followed: bool = True,
    ) -> None:
        self.program = Program([*input_size, *(s for each in strides.values() for s in each)])
        self.axes = len(input_size)
        self.is_followed = is_followed
        """Whether the network is given sizes that can be followed: some take plain numbers only."""
        self.strides = strides
        self.stride_places: dict[DiffStrideNd, range] = {}
        """Where the strides of each layer stand among the numbers of the program."""
        first = self.axes
        for layer, numbers in strides.items():
            self.stride_places[layer] = range(first, first + len(numbers))
            first += len(numbers)
        self.names = {module: name for name, module in model.named_modules()}
        self.uses: list[Use] = []
        self.mode = OperationMode(self)
        self.inside = 0
        """How many layers are running whose sizes are known, so that nothing in them matters."""
        self._work = LayerWork(self)
        self._sizes: dict[int, tuple[Tensor, Sizes]] = {}
        """Of every tensor that was computed from the input; they stay alive, and ids theirs."""
        self._constants: dict[int, Tensor] = {}
        self._made: dict[nn.Module, Sizes] = {}
        """What each site has made last."""
        self._read: dict[SizeRead, Sizes] = {}
        """What each site that is undone has read last."""
        self._saved: set[int] = set()
        """The memory of tensors that are kept for the backward pass already."""
        self._open: list[Use] = []
        """Counted layers that are running."""

    def end(self) -> None:
        """Let go of all tensors."""
        for held in (self._sizes, self._constants, self._made, self._read, self._saved):
            held.clear()

    def constant(self, x: Tensor) -> Tensor:
        """Note a tensor that the network holds and that does not depend on the input."""
        self._constants[id(x)] = x
        return x

    def begin(self, x: Tensor) -> None:
        program = self.program
        lengths = [Length(program, place) for place in range(1, self.axes)]
        program.expect(0)  # the channels
        self._sizes[id(x)] = x, (1, x.shape[1], *lengths)
        self._saved.add(_memory(x))
        for layer, strides in self.strides.items():
            for parameter in layer.parameters():
                self.constant(parameter)
            # The module's own dictionary is restored after the run.
            vars(layer)["_read"] = self._reader(layer, tuple(strides))
            if type(layer).forward in PLANNED_FORWARDS:
                vars(layer)["forward"] = _sizes_alone(layer)

    def _reader(self, layer: DiffStrideNd, strides: tuple[float, ...]) -> Any:
        reading = Reading(None, -1, strides[: layer.stride.numel()], strides)

        def read() -> Reading:
            if not self.inside:  # the network looks at a stride, and may do anything with it
                for place in self.stride_places[layer]:
                    self.program.expect(place)
            return reading

        return read

    def sizes(self, x: Tensor) -> Sizes:
        """Return the shape of a tensor: numbers, and lengths where it may change."""
        if id(x) in self._sizes:
            return self._sizes[id(x)][1]
        if id(x) not in self._constants:  # nobody saw where it comes from
            self.program.expect_everything()
            self.constant(x)
        return tuple(x.shape)

    def _note(self, x: Tensor, sizes: Sizes) -> None:
        """Note the sizes of a tensor, if they are what it has: otherwise follow nothing more."""
        if tuple(map(traced, sizes)) != tuple(x.shape):
            self.program.expect_everything()
            sizes = tuple(x.shape)
        for n in sizes:
            if type(n) is Length:
                self.program.is_size(n.place)
        self._sizes[id(x)] = x, sizes

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        check_axes(self.names[layer], layer, x)
        self._work.enter(layer, x)
        self._open.append(Use(self.names[layer], layer, self.sizes(x), ()))
        if isinstance(layer, Resizer | Converted) and layer.size_read is not None:
            self._read[layer.size_read] = self.sizes(x)[2:]
        if isinstance(layer, Resizer):
            self.inside += 1

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        use = self._open.pop()
        if isinstance(layer, Resizer):
            self.inside -= 1
            batch, channels = self.sizes(x)[:2]
            if type(layer).forward not in PLANNED_FORWARDS:  # it may do anything to channels
                as_read(channels)
                channels = output.shape[1]
            self._note(output, (batch, channels, *self._site(layer, x)))
            self._made[layer] = self.sizes(output)[2:]
            if layer.stride_owner is not None:  # its spectrum, which is as large
                self._keep(use, output, output.dtype)
        use.output_sizes = self.sizes(output)
        self._work.leave(use, layer)
        self.uses.append(use)

    def _site(self, layer: Resizer, x: Tensor) -> Sizes:
        """Return the sizes that a layer makes."""
        owner = layer.stride_owner
        if layer.follows and layer.leading in self._made:
            return self._made[layer.leading]
        if layer.source in self._read:
            return self._read[layer.source]
        places = () if owner is None else tuple(self.stride_places[owner])
        sizes = [
            n.place if type(n) is Length else self.program.add(ConstantStep(n))
            for n in self.sizes(x)[2:]
        ]
        site = Site(layer, tuple(sizes), places)
        place = self.program.add(site)
        picks = [Pick(site, place, axis) for axis in range(len(sizes))]
        return tuple(Length(self.program, self.program.add(pick)) for pick in picks)

    def _keep(self, use: Use, x: Tensor, dtype: torch.dtype | None = None) -> None:
        """Note that a map stays in memory until the backward pass, or another one of its size."""
        memory = _memory(x)
        if dtype is None and memory in self._saved:
            return
        if dtype is None:
            self._saved.add(memory)
        use.saved.append(Amount((dtype or x.dtype).itemsize, self.sizes(x)))

    def follow(self, function: Any, name: str, args: Any, kwargs: Any, result: Any) -> Any:
        """Note the sizes of what an operation made; return what the network is given."""
        leaves = leaves_in((args, kwargs))
        given = [x for x in leaves if isinstance(x, Tensor)]
        depends = [x for x in given if any(type(n) is Length for n in self.sizes(x))]
        outputs = [x for x in leaves_in(result) if isinstance(x, Tensor)]
        if not outputs:
            return self._number(name, args, kwargs, result, depends)
        computed = any(id(x) in self._sizes for x in given)
        call = Call(self.program, args, kwargs, self.sizes)
        if not depends and not any(type(x) is Length for x in leaves):
            made: list[Sizes] = [tuple(x.shape) for x in outputs]
        else:
            made = self._outputs(function, name, call, outputs, leaves)
        for x, sizes in zip(outputs, made, strict=True):
            if computed or any(type(n) is Length for n in sizes):
                self._note(x, sizes)
            else:
                self.constant(x)
        if computed:
            self._use(name, given, outputs)
        return result

    def _outputs(
        self, function: Any, name: str, call: Call, outputs: list[Tensor], leaves: list[Any]
    ) -> list[Sizes]:
        try:
            if rule := rule_for(name):
                return [rule(call)] * len(outputs)
            for leaf in leaves:
                if type(leaf) is Length:
                    leaf.read()
            args, kwargs = tree_map(as_read, (call.args, call.kwargs))
            made = tried(function, name, Call(self.program, args, kwargs, self.sizes))
            if len(made) == len(outputs):
                return made
        except Exception:  # no rule, or an unusual way to call it
            pass
        self.program.expect_everything()
        return [tuple(x.shape) for x in outputs]

    def _number(self, name: str, args: Any, kwargs: Any, result: Any, depends: Any) -> Any:
        """Return what the network is told of tensors: sizes as lengths, all else as it is."""
        x: Any = args[0] if args else None
        known = isinstance(x, Tensor) and id(x) in self._sizes
        if not known and not depends:
            if name in _TELL_VALUES:
                self.program.expect_everything()
            return result
        if result is None or name in _TELL_NO_SIZE:
            return result
        if known and name in ("shape.get", "size"):
            if caller(3) in _OUR_READERS:
                return result
            sizes: Sizes = self.sizes(x)
            if not self.is_followed:
                sizes = tuple(as_read(n) for n in sizes)
            axis = args[1] if len(args) > 1 else kwargs.get("dim")
            if axis is not None:
                return sizes[axis]
            return Shape(sizes) if any(type(n) is Length for n in sizes) else result
        if known and name in ("numel", "nelement"):
            return product(self.sizes(x)) if self.is_followed else as_read(product(self.sizes(x)))
        if known and name == "__len__":
            return as_read(self.sizes(x)[0])
        self.program.expect_everything()
        return result

    def _use(self, name: str, given: list[Tensor], outputs: list[Tensor]) -> None:
        """Note what an operation keeps; outside of layers that count, that it was used."""
        first = next(x for x in given if id(x) in self._sizes)
        use = self._open[-1] if self._open else None
        if use is None:
            use = Use(name, None, self.sizes(first), self.sizes(outputs[0]))
            self.uses.append(use)
        maps = [x for x in given if id(x) in self._sizes]
        for x, dtype in kept_by(name, maps, outputs):
            self._keep(use, x, dtype)


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _sizes_alone(layer: DiffStrideNd) -> Any:
    """Return a forward that computes nothing where there is nothing to compute with."""

    def forward(x: Tensor) -> Tensor:
        if not x.is_meta:
            return type(layer).forward(layer, x)
        layer.check(x)
        size = tuple(x.shape)
        layer.note(size[-layer.axes :])
        return x.new_empty((*size[: -layer.axes], *layer.output_size(size[-layer.axes :])))

    return forward
