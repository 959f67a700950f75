"""Turn a trained network into a plain and fast one of constants."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.layers import DiffStrideConvNd, DiffStrideNd, SpectralPoolNd
from diffstride.layers.converted import CONVERTED, Converted, Following
from diffstride.layers.frozen import Frozen, Subsample

Downsampling = DiffStrideNd | SpectralPoolNd | Following


def freeze(
    model: nn.Module, input_size: Sequence[int], *, integer_strides: bool = False
) -> nn.Module:
    """A copy of a network in eval mode that has no stride to learn any more.

    Every learnable or spectral downsampling becomes constant matrices with the window folded in,
    for inputs of one size. A convolution that looks at one sample at a time trades places with the
    downsampling after it, where both are one layer: there are fewer samples then. The output is
    that of the model in eval mode.

    Args:
        model: a network with layers of this library.
        input_size: of one example, (channels, *spatial).
        integer_strides: instead, every stride becomes the nearest whole number, and one of so many
            samples is taken: the plain strided network next to what was learned.

    Raises:
        ValueError: if the model has nothing to freeze, uses one layer at several sizes, or has
            branches that disagree with whole strides.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 1), DiffStride2d(2.6, smoothness=2.0))
    >>> freeze(model, (3, 32, 32))
    Sequential(
      (0): Conv2d(3, 8, kernel_size=(1, 1), stride=(1, 1))
      (1): Frozen(32 × 32 → 16 × 16)
    )
    >>> freeze(model, (3, 32, 32), integer_strides=True)[1]
    Subsample(3 × 3)
    """
    frozen = copy.deepcopy(model).eval()
    parameter = next(frozen.parameters(), torch.zeros(()))
    example = torch.zeros(1, *input_size).to(parameter)
    sizes = _sizes(frozen, example)
    if not sizes:
        raise ValueError("the model has no DiffStride, DiffStrideConv or SpectralPool to freeze")
    # All is read before anything is changed: layers may follow others.
    read: dict[nn.Module, Any] = {
        module: _strides(module, size) if integer_strides else _matrices(module, size, example)
        for module, size in sizes.items()
    }
    make = _whole if integer_strides else _constant
    made: dict[nn.Module, nn.Module] = {module: make(module, read[module]) for module in sizes}
    for name, module in list(frozen.named_modules(remove_duplicate=False)):
        if module in made and name:
            parent, _, child = name.rpartition(".")
            setattr(frozen.get_submodule(parent), child, made[module])
    frozen = made.get(frozen, frozen)
    if integer_strides:
        try:
            with torch.no_grad():
                frozen(example)
        except RuntimeError as error:
            raise ValueError(f"with whole strides the network does not fit: {error}") from error
    return frozen


def _sizes(model: nn.Module, example: Tensor) -> dict[nn.Module, tuple[int, ...]]:
    """Layers to replace, and the spatial size that comes to each."""
    wholes = [m for m in model.modules() if isinstance(m, Converted | DiffStrideConvNd)]
    inside = {part for whole in wholes for part in whole.modules() if part is not whole}
    alone = [m for m in model.modules() if isinstance(m, Downsampling) and m not in inside]
    found: dict[nn.Module, tuple[int, ...]] = {}

    def note(module: nn.Module, args: Any) -> None:
        size = tuple(args[0].shape[2:])
        if found.setdefault(module, size) != size:
            name = next(name for name, other in model.named_modules() if other is module)
            raise ValueError(
                f"{name} is used at several sizes, {found[module]} and {size}, and constants are "
                f"for one: give each place a layer of its own"
            )

    hooks = [module.register_forward_pre_hook(note) for module in [*wholes, *alone]]
    try:
        with torch.no_grad():
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _matrices(module: Any, size: tuple[int, ...], like: Tensor) -> Frozen:
    if isinstance(module, Downsampling):
        return Frozen(module, size, like)
    if not _looks_at_single_samples(module):
        before = like.new_zeros(1, _channels(module), *size)
        with torch.no_grad():
            size = tuple(_undownsampled(module, before).shape[2:])
    return Frozen(module.downsample, size, like)


def _constant(module: Any, matrices: Frozen) -> nn.Module:
    """The same layer with matrices in the place of what it learned."""
    if isinstance(module, Downsampling):
        return matrices
    convolution = _plain(module, 1) if isinstance(module, DiffStrideConvNd) else module
    single = _looks_at_single_samples(module)
    if single and convolution.bias is not None:
        # The bias, a constant, becomes what downsampling makes of it.
        with torch.no_grad():
            ones = convolution.bias.new_ones(1, 1, *matrices.size)
            convolution.bias.mul_(matrices(ones).flatten()[0])
    if isinstance(module, Converted):
        module.downsample = matrices
        module.downsample_first = single
        return module
    return nn.Sequential(matrices, convolution) if single else nn.Sequential(convolution, matrices)


def _strides(module: Any, size: tuple[int, ...]) -> tuple[int, ...]:
    """The nearest whole numbers."""
    layer = module if isinstance(module, Downsampling) else module.downsample
    if isinstance(layer, Following):
        return layer.whole_strides
    if isinstance(layer, SpectralPoolNd):
        strides = [n / m for n, m in zip(size, layer.output_size(size), strict=True)]
    else:
        strides = list(layer.strides)
    return tuple(max(1, round(s)) for s in strides)


def _whole(module: Any, strides: tuple[int, ...]) -> nn.Module:
    """The same layer with a whole stride."""
    if isinstance(module, DiffStrideConvNd):
        plain: nn.Module = _plain(module, strides)
        return plain
    base = _torch_base(module)
    if base is None:
        return Subsample(strides)
    del module.downsample
    module.__class__ = base
    module.stride = strides
    converted: nn.Module = module
    return converted


def _plain(module: DiffStrideConvNd, stride: Any) -> Any:
    """A convolution of torch with the weights of one of ours."""
    make: Any = module.convolution
    convolution = make(
        module.weight.shape[1] * module.groups,
        module.weight.shape[0],
        module.kernel_size,
        stride=stride,
        padding=module.padding,
        dilation=module.dilation,
        groups=module.groups,
        bias=module.bias is not None,
        padding_mode=module.padding_mode,
    )
    convolution.weight = module.weight
    convolution.bias = module.bias
    return convolution.eval()


def _looks_at_single_samples(layer: Any) -> bool:
    """Whether a layer is a convolution that does not look sideways."""
    if not isinstance(layer, _ConvNd | DiffStrideConvNd):
        return False
    padded = not isinstance(layer.padding, str) and any(layer.padding)
    return set(layer.kernel_size) == {1} and not padded


def _channels(layer: Any) -> int:
    if isinstance(layer, DiffStrideConvNd):
        return layer.weight.shape[1] * layer.groups
    return int(getattr(layer, "in_channels", 1))


def _undownsampled(layer: Any, x: Tensor) -> Tensor:
    """What a layer makes before its downsampling."""
    if isinstance(layer, DiffStrideConvNd):
        found: Tensor = _plain(layer, 1)(x)
        return found
    base = _torch_base(layer)
    return x if base is None else base.forward(layer, x)


def _torch_base(module: nn.Module) -> type[Any] | None:
    """The class that a converted layer had before, None for one that did nothing."""
    return next((kind for kind in type(module).__mro__ if kind in CONVERTED), None)
