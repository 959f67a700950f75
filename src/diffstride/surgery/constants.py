"""Layers of this library as constants: which they are, what comes to them, what replaces them."""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.weak import WeakIdKeyDictionary

from diffstride.analysis.observing import Observer, Operation, observe, tensors_in
from diffstride.core.taps import spread
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.converted import CONVERTED, Converted, recast
from diffstride.layers.frozen import Frozen, FrozenConv
from diffstride.layers.resizer import AxisConstants, Resizer, work

Size = tuple[int, ...]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def find_sizes(model: nn.Module, example: Tensor) -> dict[nn.Module, Size]:
    """Return the layers to replace, and the spatial size that comes to each."""
    names = {module: name for name, module in model.named_modules()}
    # What was frozen before has a converted layer still, but nothing in it that is learned.
    layers = [
        module
        for module in names
        if isinstance(module, Resizer)
        or (isinstance(module, Converted) and isinstance(module.downsample, Resizer))
    ]
    sizes: dict[nn.Module, Size] = {}

    class Sizes(Observer):
        inside = 0

        def enter(self, layer: nn.Module, x: Tensor) -> None:
            if not self.inside:
                size = tuple(x.shape[-resizer_of(layer).axes :])
                if sizes.setdefault(layer, size) != size:
                    raise ValueError(
                        f"{names[layer]} is used at several sizes, {sizes[layer]} and {size}, and "
                        f"constants are for one: use another layer in each place"
                    )
            self.inside += 1

        def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
            self.inside -= 1

    observe(model, example, Sizes(), layers=layers)
    if not sizes:
        raise ValueError(
            "the model has no DiffStride or other layer of this library that changes sizes, and so "
            "nothing to freeze, unless it was frozen before"
        )
    return sizes


def resizer_of(module: nn.Module) -> Resizer:
    """Return the layer that changes the size: the module itself, or what a converted one has."""
    layer = module.downsample if isinstance(module, Converted) else module
    assert isinstance(layer, Resizer)
    return layer


def replace_by_constants(model: nn.Module, example: Tensor, merging: bool) -> nn.Module:
    """Put constants in the places of what a network learned, and return it.

    With ``merging``, a downsampling that follows a convolution at once may come before it.
    """
    sizes = find_sizes(model, example)
    # All is read before anything is changed: layers may follow others.
    constants, made = {}, {}
    for module, size in sizes.items():
        read = module.size_before_downsampling(size) if isinstance(module, Converted) else size
        if (frozen := resizer_of(module).frozen(read)) is not None:
            made[module] = _with(module, frozen)
        else:
            constants[module] = resizer_of(module).constants(read, example)
    mergeable = find_mergeable(model, example, sizes) if merging else {}
    for module, axes in constants.items():
        made[module] = _constant(module, sizes[module], axes, example)
    for convolution, (layer, size) in mergeable.items():
        constant = made[layer]
        if not isinstance(constant, Frozen):
            continue
        if constant.size == constant.output_size:  # it could not tell what is done already
            continue
        before = _before(convolution, size, constants[layer], example)
        if before is not None:
            merged = recast(convolution, CONVERTED[type(convolution)][2])
            merged.downsample, merged.downsample_first = before, True
            made[convolution] = merged
            constant.done_before = True
    return replace_modules(model, made)


def replace_modules(model: nn.Module, made: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Put other modules in the places of some, with the hooks of those; return the network."""
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if name and module in made and modules[parent] not in made:  # which takes its place
            setattr(modules[parent], child, made[module])
    for old, new in made.items():
        _move_hooks(old, new)
    return made.get(model, model)


def _move_hooks(old: nn.Module, new: nn.Module) -> None:
    for name in (
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
    ):
        setattr(new, name, getattr(old, name))


def _with(module: Any, frozen: nn.Module) -> nn.Module:
    """Return the same layer with another one in the place of what changes sizes in it."""
    if not isinstance(module, Converted):
        return frozen
    layer: Any = recast(module, type(module))
    vars(layer).pop("size_read", None)
    layer._modules = {**module._modules, "downsample": frozen}
    return layer  # type: ignore[no-any-return]


def _constant(module: Any, size: Size, axes: list[AxisConstants], like: Tensor) -> nn.Module:
    """Return the same layer with constants in the place of what it learned."""
    if isinstance(module, DiffStrideConvNd):
        layer = plain_convolution(module, 1)
    elif isinstance(module, Converted):
        layer = recast(module, type(module))
        vars(layer).pop("size_read", None)  # what undoes it becomes constants too
    else:
        return Frozen(axes, like)
    before = None
    comes_first = isinstance(module, Converted) and module.downsample_first
    if isinstance(layer, _ConvNd) and not comes_first and not _has_hooks(module.downsample):
        before = _before(layer, size, axes, like)
    downsample = before or Frozen(axes, like)
    if isinstance(module, DiffStrideConvNd):
        return FrozenConv(layer, downsample, before is not None)
    _move_hooks(module.downsample, downsample)
    layer.downsample, layer.downsample_first = downsample, comes_first or before is not None
    return layer  # type: ignore[no-any-return]


def _before(convolution: Any, size: Size, axes: list[AxisConstants], like: Tensor) -> Frozen | None:
    """Return the downsampling for before a convolution instead of after it, if that is less work.

    The convolution is then changed to read what it makes.
    """
    mode = convolution.padding_mode
    plain = mode == "zeros" and not isinstance(convolution.padding, str)
    if plain:
        paddings = [(p, p) for p in convolution.padding]
    else:
        both = convolution._reversed_padding_repeated_twice  # the last axis first
        paddings = [(both[-2 * i - 2], both[-2 * i - 1]) for i in range(len(size))]
    dilation = list(convolution.dilation)
    first = []
    for i, axis in enumerate(axes):
        kernel = convolution.kernel_size[i]
        if plain and axis.is_identity:  # the convolution does as ever along this axis
            first.append(AxisConstants(size[i], size[i]))
            continue
        if kernel == 1 and paddings[i] == (0, 0):
            first.append(axis)
        elif axis.weights is not None:  # each tap would need a matrix, and long ones are large
            return None
        else:
            # A copy: exporters stumble over buffers that are views.
            taps = spread(axis.dense(like), size[i], kernel, dilation[i], paddings[i], mode).clone()
            first.append(AxisConstants(size[i], len(taps), matrix=taps))
        dilation[i], paddings[i] = axis.kept, (0, 0)
    weights = convolution.weight.numel()
    first_work = weights * math.prod(axis.kept for axis in axes)
    first_work += convolution.in_channels * work(first)
    usual_work = weights * math.prod(axis.size for axis in axes)
    usual_work += convolution.out_channels * work(axes)
    # Taps that lie far apart take a convolution longer.
    slower = 1 if set(convolution.kernel_size) == {1} else 2
    if slower * first_work >= usual_work:
        return None
    if convolution.bias is not None:
        # The bias, a constant, becomes what downsampling makes of it.
        gain = math.prod(axis.gain for axis in axes)
        convolution.bias = nn.Parameter(convolution.bias.detach() * gain)
    convolution.dilation = tuple(dilation)
    convolution.padding = tuple(left for left, _ in paddings)
    convolution.padding_mode = "zeros"
    return Frozen(first, like)


def plain_convolution(module: DiffStrideConvNd, stride: Any) -> Any:
    """Return a convolution of torch with the weights of one of ours."""
    names = ("kernel_size", "padding", "dilation", "groups", "padding_mode")
    options = {name: getattr(module, name) for name in names}
    channels = (module.weight.shape[1] * module.groups, module.weight.shape[0])
    make: Any = module.convolution
    bias = module.bias is not None
    convolution = make(*channels, stride=stride, bias=bias, device="meta", **options)
    convolution.weight, convolution.bias = module.weight, module.bias
    return convolution


class _Uses(Observer):
    """Counts for what every output of a convolution is used, be it only to read its shape.

    What one of ``layers`` does with an output counts as one use.
    """

    def __init__(self, convolutions: Collection[nn.Module], layers: Collection[nn.Module]) -> None:
        self.convolutions = {module for module in convolutions if not _has_hooks(module)}
        self.layers = {module for module in layers if not _has_hooks(module)}
        self.calls: Counter[nn.Module] = Counter()
        self.made: Any = WeakIdKeyDictionary()
        """Of every output the convolution, and the spatial size that came to it."""
        self.uses: Any = WeakIdKeyDictionary()
        self.followed: list[tuple[Tensor, nn.Module]] = []
        """Outputs of convolutions, and the layers that they went into."""
        self._inside = 0

    def enter(self, layer: nn.Module, x: Tensor) -> None:
        if layer in self.layers:
            if x in self.made and not self._inside:
                self.followed.append((x, layer))
                self.count([x])
            self._inside += 1

    def leave(self, layer: nn.Module, x: Tensor, output: Any) -> None:
        if layer in self.layers:
            self._inside -= 1
        elif layer in self.convolutions:
            self.calls[layer] += 1
            self.made[output] = (layer, tuple(x.shape[-len(layer.kernel_size) :]))  # type: ignore[arg-type]
            self.uses[output] = 0  # from now on

    def operation(self, operation: Operation) -> None:
        if not self._inside:
            self.count(operation.inputs)

    def count(self, tensors: list[Tensor]) -> None:
        for x in {x for x in tensors if x in self.made}:
            self.uses[x] += 1


def find_mergeable(
    model: nn.Module, example: Tensor, layers: Collection[nn.Module]
) -> dict[nn.Module, tuple[nn.Module, Size]]:
    """Return convolutions whose output goes into one of these layers and nowhere else.

    Each with the layer, and the spatial size that comes to the convolution. One that is used
    several times is left out, as is one around which hooks do something.
    """
    plain = [m for m in model.modules() if type(m) in CONVOLUTIONS and set(m.stride) == {1}]  # type: ignore[arg-type]
    alone = [m for m in layers if not isinstance(m, Converted | DiffStrideConvNd)]
    uses = _Uses(plain, alone)
    uses.count(tensors_in(observe(model, example, uses)))  # what comes out is used, too
    mergeable = {}
    for x, layer in uses.followed:
        convolution, size = uses.made[x]
        if uses.uses[x] == 1 and uses.calls[convolution] == 1:
            mergeable[convolution] = (layer, size)
    return mergeable


def _has_hooks(module: nn.Module) -> bool:
    """Return whether something happens around a module that is no part of it."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
