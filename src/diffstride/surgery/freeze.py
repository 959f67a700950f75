"""Turn a trained network into a plain and fast one of constants."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from diffstride.analysis.observing import tensors_in
from diffstride.analysis.restoring import check_copyable, copied
from diffstride.layers.conv import DiffStrideConvNd
from diffstride.layers.converted import Converted, recast, shortening, torch_class
from diffstride.layers.frozen import Subsample
from diffstride.layers.resizer import Resizer
from diffstride.layers.size_read import NotesInput
from diffstride.surgery.constants import (
    find_sizes,
    plain_convolution,
    replace_by_constants,
    replace_modules,
    resizer_of,
)

# How far outputs may be apart, relative to the largest, where both are computed in this precision.
LIMITS = {torch.float64: 1e-7, torch.float32: 1e-3}


def freeze(
    model: nn.Module, input_size: Sequence[int], *, integer_strides: bool = False
) -> nn.Module:
    """Return a copy of a network in eval mode that has no stride to learn any more.

    All learnable or spectral down- and upsampling becomes constants with windows folded in, for
    inputs of one size: a matrix an axis, or on a long axis the weights of its frequencies, for an
    FFT. Where it follows a convolution at once, and it is less work, both trade places: the
    matrices then make what each tap of the convolution reads, which computes no more outputs than
    are left. Weights that are computed from others (``torch.nn.utils.parametrize``) become
    constants too.

    The output is that of the model in eval mode. This is checked in double precision, whatever
    precision the network has; constants are computed in it, and rounded once.

    Args:
        model: a network with layers of this library. It is left as it is.
        input_size: of one example, (channels, *spatial).
        integer_strides: instead, every stride becomes the nearest whole number, and one of so many
            samples is taken: the plain strided network next to what was learned.

    Raises:
        ValueError: if the model has nothing to freeze, uses one layer at several sizes, or has
            branches that disagree with whole strides; if it can't be copied and changed (compiled,
            wrapped for training in parallel, without weights yet), with what to do.

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
    check_copyable(model, "freeze")
    unfrozen = copied(model).eval()
    forget_conversion(unfrozen)
    like = next((p for p in unfrozen.parameters() if p.is_floating_point()), torch.zeros(()))
    x = torch.rand(1, *input_size, generator=torch.Generator().manual_seed(0)).to(like)
    try:
        outputs = _run(unfrozen, x)
    except Exception as error:
        raise ValueError(
            f"the model can't take a batch of one example, of the shape {tuple(x.shape)}: "
            f"input_size must be (channels, *spatial) of one example. It said: {error}"
        ) from error
    if integer_strides:
        return _with_whole_strides(_without_parametrizations(unfrozen), x).eval()
    precise, precise_x, truth = _more_precise(unfrozen, x)
    limit = LIMITS[precise_x.dtype]
    rounding = 10 * max(_distance(outputs, truth), 4 * torch.finfo(x.dtype).eps)
    # What is merged is seen in one pass; should a network do more than was seen, nothing is merged.
    cause: Exception | None = None
    for merging in (True, False):
        frozen = _without_parametrizations(copied(precise))
        frozen = replace_by_constants(frozen, precise_x, merging).eval()
        try:
            if _distance(_run(frozen, precise_x), truth) <= limit:
                _round(frozen, unfrozen, x.dtype)
                if _distance(_run(frozen, x), truth) <= max(limit, rounding):
                    return frozen
        except Exception as error:  # whatever the network says of what it can't take
            cause = error
    raise ValueError(
        "the frozen network computes something else than the model: does it do more with a layer "
        "of this library than to call it, or change from call to call?"
    ) from cause


def forget_conversion(model: nn.Module) -> None:
    """Have no config in a network tell how its strides were converted: they are not, any more."""
    for module in model.modules():
        config: Any = vars(module).get("config")
        if callable(getattr(config, "to_dict", None)) and hasattr(config, "diffstride"):
            del config.diffstride


def _run(model: nn.Module, x: Tensor) -> list[Tensor]:
    with torch.no_grad():
        return tensors_in(model(x))


def _more_precise(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor, list[Tensor]]:
    """Return a copy in the highest precision that it runs in, with its input and outputs."""
    cause: Exception | None = None
    for dtype in LIMITS:
        try:
            precise = copied(model)
            precise = precise.double() if dtype == torch.float64 else precise.float()
            return precise, x.to(dtype), _run(precise, x.to(dtype))
        except Exception as error:  # whatever the network says of another precision
            cause = error
    raise ValueError(
        "what is frozen is compared with the model in double or single precision, and the model "
        "runs in neither: let its forward take the precision of its input and weights, instead of "
        f"one that is written there. It said: {cause}"
    ) from cause


def _without_parametrizations(model: nn.Module) -> nn.Module:
    """Make weights constants that are computed from others, and return the network."""
    made = {}
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            values = {name: getattr(module, name).detach() for name in module.parametrizations}  # type: ignore[union-attr]
            # Not remove_parametrizations, which changes the class: copies have it in common.
            plain = recast(module, parametrize.type_before_parametrizations(module))
            del plain.parametrizations
            for name, value in values.items():
                setattr(plain, name, nn.Parameter(value))
            made[module] = plain
        for number, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, WeightNorm | SpectralNorm):  # the older way to do the same
                hook.remove(module)
                del module._forward_pre_hooks[number]
    return replace_modules(model, made)


def _with_whole_strides(model: nn.Module, example: Tensor) -> nn.Module:
    """Make every stride of a network the nearest whole number, and return the network."""
    # All is read before anything is changed: layers may follow others.
    sizes = find_sizes(model, example)
    strides = {module: resizer_of(module).strides_for(size) for module, size in sizes.items()}
    notes = {module: list(_notes(module)) for module in sizes}
    made = {
        module: _strided(module, tuple(max(1, round(s)) for s in real))
        for module, real in strides.items()
        # What makes maps larger has no stride, and stays as it is.
        if min(real) >= 1 and resizer_of(module).source is None
    }
    plain = replace_modules(model, made)
    for module, strided in made.items():
        for note in notes[module]:
            strided.register_forward_pre_hook(note)
    try:
        _run(plain, example)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"with whole strides the network does not fit: {error}. Branches that meet must shrink "
            f"by the same whole number, and code of the network must call a convolution as one of "
            f"torch. Without integer_strides=True, strides are frozen as they are"
        ) from error
    return plain


def _notes(module: nn.Module) -> Iterator[NotesInput]:
    """Yield what must be noted in the place of a layer, for those that undo it."""
    if isinstance(module, Converted) and module.size_read is not None:
        yield NotesInput(module.size_read, (0,) * resizer_of(module).axes)
    for layer in dict.fromkeys((module, resizer_of(module))):
        if isinstance(layer, Resizer) and layer.size_read is not None:
            behind = isinstance(module, Converted) and not module.downsample_first
            less = shortening(module, layer.axes) if behind else (0,) * layer.axes
            yield NotesInput(layer.size_read, less)


def _strided(module: Any, strides: tuple[int, ...]) -> Any:
    """Return the same layer with a whole stride."""
    if isinstance(module, DiffStrideConvNd):
        return plain_convolution(module, strides)
    base = torch_class(module)
    if base is None:  # a layer of ours, or one in the place of a pooling
        return Subsample(strides)
    if module.downsample_first:
        subsampled = recast(module, type(module))
        subsampled.downsample = Subsample(strides)
        vars(subsampled).pop("size_read", None)  # a hook notes it now
        return subsampled
    unconverted = recast(module, base)
    del unconverted.downsample
    vars(unconverted).pop("size_read", None)
    unconverted.stride = strides
    return unconverted


def _round(model: nn.Module, like: nn.Module, otherwise: torch.dtype) -> None:
    """Give all tensors the precision they have in another network, where they are in it."""
    dtypes = {name: x.dtype for name, x in _named_tensors(like)}
    for name, x in _named_tensors(model):
        if x.is_floating_point():
            x.data = x.data.to(dtypes.get(name, otherwise))


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _distance(outputs: list[Tensor], expected: list[Tensor]) -> float:
    """Return how far numbers are apart, relative to the largest of each tensor."""
    if [x.shape for x in outputs] != [x.shape for x in expected]:
        return math.inf
    worst = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if b.is_floating_point() and b.numel():
            a, b = a.cpu().double(), b.cpu().double()
            same = (a == b) | (a.isnan() & b.isnan())
            off = torch.where(same, 0.0, (a - b).abs()).max().item()
            off /= max(torch.where(b.isfinite(), b, 0.0).abs().max().item(), 1e-6)
            worst = max(worst, math.inf if math.isnan(off) else off)
    return worst
