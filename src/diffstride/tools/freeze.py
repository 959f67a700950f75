"""Turn a trained network into a plain and fast one of constants."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.layers import DiffStrideConvNd, DiffStrideNd, SpectralPoolNd
from diffstride.layers.converted import CONVERTED, Converted, Following
from diffstride.layers.frozen import Frozen, Subsample, is_identity, read_matrices, spread, work
from diffstride.tools.pairs import find_pairs, first_input, tensors

Downsampling = DiffStrideNd | SpectralPoolNd | Following


def freeze(
    model: nn.Module, input_size: Sequence[int], *, integer_strides: bool = False
) -> nn.Module:
    """A copy of a network in eval mode that has no stride to learn any more.

    Every learnable or spectral downsampling becomes constant matrices with the window folded in,
    for inputs of one size. Where it follows a convolution at once, and it is less work, both trade
    places: the matrices then make what each tap of the convolution reads, which computes no more
    outputs than are left. The output is that of the model in eval mode.

    Args:
        model: a network with layers of this library.
        input_size: of one example, (channels, *spatial).
        integer_strides: instead, every stride becomes the nearest whole number, and one of so many
            samples is taken: the plain strided network next to what was learned.

    Raises:
        ValueError: if the model has nothing to freeze, uses one layer at several sizes, or has
            branches that disagree with whole strides.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.ReLU(), DiffStride2d(2.6, smoothness=2.0))
    >>> freeze(model, (3, 32, 32))
    Sequential(
      (0): ReLU()
      (1): Frozen(32 × 32 → 16 × 16)
    )
    >>> freeze(model, (3, 32, 32), integer_strides=True)[1]
    Subsample(3 × 3)
    """
    if integer_strides:
        return _integer(model, input_size)
    example = _example(model, input_size)
    sample = torch.rand(example.shape, generator=torch.Generator().manual_seed(0)).to(example)
    expected = _outputs(copy.deepcopy(model).eval(), sample)
    # What is merged is seen in one pass; should a network do more than was seen, nothing is merged.
    cause: Exception | None = None
    for merging in (True, False):
        frozen = _frozen(model, example, merging)
        try:
            if _close(_outputs(frozen, sample), expected):
                return frozen
        except Exception as error:  # whatever the network says of what it can't take
            cause = error
    raise ValueError(
        "the frozen network computes something else than the model: does it do more with a layer "
        "of this library than to call it, or change from call to call?"
    ) from cause


def _example(model: nn.Module, input_size: Sequence[int]) -> Tensor:
    parameter = next(model.parameters(), torch.zeros(()))
    return torch.zeros(1, *input_size).to(parameter)


def _outputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return tensors(model(x))


def _close(found: list[Tensor], expected: list[Tensor]) -> bool:
    """Whether both are the same numbers, to some digits of the precision they have."""
    if [x.shape for x in found] != [x.shape for x in expected]:
        return False
    for a, b in zip(found, expected, strict=True):
        if b.is_floating_point():
            largest = b.abs().max().item() if b.numel() else 0.0
            limit = 1e4 * torch.finfo(b.dtype).eps if b.dtype.itemsize > 2 else 0.1
            if not torch.allclose(a, b, rtol=0, atol=limit * max(largest, 1e-6), equal_nan=True):
                return False
    return True


def _frozen(model: nn.Module, example: Tensor, merging: bool) -> nn.Module:
    frozen = copy.deepcopy(model).eval()
    sizes = _sizes(frozen, example)
    # All is read before anything is changed: layers may follow others.
    matrices = {module: _matrices(module, size, example) for module, size in sizes.items()}
    alone = [module for module in sizes if isinstance(module, Downsampling)]
    pairs = find_pairs(frozen, example, alone) if merging else {}
    made = {
        module: _constant(module, size, matrices[module], example) for module, size in sizes.items()
    }
    for convolution, (layer, size) in pairs.items():
        constant = made[layer]
        assert isinstance(constant, Frozen)
        if constant.size == constant.output_size:  # it could not tell what is done already
            continue
        before = _before(convolution, size, matrices[layer], example)
        if before is not None:
            _downsample_first(convolution, before)
            constant.done_before = True
    return _replaced(frozen, made)


def _integer(model: nn.Module, input_size: Sequence[int]) -> nn.Module:
    frozen = copy.deepcopy(model).eval()
    example = _example(frozen, input_size)
    sizes = _sizes(frozen, example)
    strides = {module: _strides(module, size) for module, size in sizes.items()}
    frozen = _replaced(frozen, {module: _whole(module, strides[module]) for module in sizes})
    try:
        with torch.no_grad():
            frozen(example)
    except RuntimeError as error:
        raise ValueError(f"with whole strides the network does not fit: {error}") from error
    return frozen


def _replaced(model: nn.Module, made: dict[nn.Module, nn.Module]) -> nn.Module:
    """A network with other modules in the places of some."""
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if module in made and name:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, made[module])
    return made.get(model, model)


def _sizes(model: nn.Module, example: Tensor) -> dict[nn.Module, tuple[int, ...]]:
    """Layers to replace, and the spatial size that comes to each."""
    wholes = [m for m in model.modules() if isinstance(m, Converted | DiffStrideConvNd)]
    inside = {part for whole in wholes for part in whole.modules() if part is not whole}
    alone = [m for m in model.modules() if isinstance(m, Downsampling) and m not in inside]
    found: dict[nn.Module, tuple[int, ...]] = {}

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        size = tuple(first_input(args, kwargs).shape[2:])
        if found.setdefault(module, size) != size:
            name = next(name for name, other in model.named_modules() if other is module)
            raise ValueError(
                f"{name} is used at several sizes, {found[module]} and {size}, and constants are "
                f"for one: give each place a layer of its own"
            )

    hooks = [
        module.register_forward_pre_hook(note, with_kwargs=True) for module in [*wholes, *alone]
    ]
    try:
        with torch.no_grad():
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise ValueError("the model has no DiffStride, DiffStrideConv or SpectralPool to freeze")
    return found


def _matrices(module: Any, size: tuple[int, ...], example: Tensor) -> list[Tensor]:
    """What a layer's downsampling does along each axis."""
    if isinstance(module, Downsampling):
        return read_matrices(module, size, example.device)
    x = example.new_zeros(1, _channels(module), *size)
    with torch.no_grad():
        between = tuple(_undownsampled(module, x).shape[2:])
    # A convolution of ours is asked for its downsampling alone, one of torch has it as a part.
    return read_matrices(module.downsample, between, example.device)


def _constant(
    module: Any, size: tuple[int, ...], matrices: list[Tensor], like: Tensor
) -> nn.Module:
    """The same layer with matrices in the place of what it learned."""
    if isinstance(module, Downsampling):
        return Frozen(matrices, like)
    convolution = _plain(module, 1) if isinstance(module, DiffStrideConvNd) else module
    before = None
    if isinstance(convolution, _ConvNd):
        before = _before(convolution, size, matrices, like)
    if isinstance(module, Converted):
        module.downsample = before or Frozen(matrices, like)
        module.downsample_first = before is not None
        return module
    if before is not None:
        return _downsample_first(convolution, before)
    return nn.Sequential(convolution, Frozen(matrices, like))


def _downsample_first(convolution: nn.Module, before: Frozen) -> nn.Module:
    """A convolution that reads what is downsampled already, and is one of torch still."""
    convolution.__class__ = CONVERTED[type(convolution)][2]
    changed: Any = convolution
    changed.downsample, changed.downsample_first = before, True
    return convolution


def _before(
    convolution: Any, size: tuple[int, ...], matrices: list[Tensor], like: Tensor
) -> Frozen | None:
    """The downsampling for before a convolution instead of after it, if that is less work.

    The convolution is changed to read what it makes; otherwise nothing is.
    """
    axes = range(len(size))
    mode = convolution.padding_mode
    plain = mode == "zeros" and not isinstance(convolution.padding, str)
    if plain:
        paddings = [(p, p) for p in convolution.padding]
    else:
        both = convolution._reversed_padding_repeated_twice  # the last axis first
        paddings = [(both[-2 * i - 2], both[-2 * i - 1]) for i in axes]
    dilation = list(convolution.dilation)
    spread_out = []
    for i in axes:
        if plain and is_identity(matrices[i]):  # the convolution does as ever along this axis
            spread_out.append(torch.eye(size[i]).to(matrices[i]))
            continue
        spread_out.append(
            spread(matrices[i], size[i], convolution.kernel_size[i], dilation[i], paddings[i], mode)
        )
        dilation[i], paddings[i] = len(matrices[i]), (0, 0)
    weights = convolution.weight.numel()
    inside, outside = (
        math.prod(matrix.shape[side] for matrix in matrices) * weights for side in (0, 1)
    )
    inside += convolution.in_channels * work(spread_out)
    outside += convolution.out_channels * work(matrices)
    # Taps that lie far apart take a convolution longer.
    slower = 1 if set(convolution.kernel_size) == {1} else 2
    if slower * inside >= outside:
        return None
    if convolution.bias is not None:
        # The bias, a constant, becomes what downsampling makes of it.
        gain = math.prod(float(matrix[0].sum()) for matrix in matrices)
        convolution.bias = nn.Parameter(convolution.bias.detach() * gain)
    convolution.dilation = tuple(dilation)
    convolution.padding = tuple(left for left, _ in paddings)
    convolution.padding_mode = "zeros"
    return Frozen(spread_out, like)


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
