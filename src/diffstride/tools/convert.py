"""Give any network learnable strides, and keep its weights."""

import copy
import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from diffstride.core import arguments
from diffstride.layers import DiffStride1d, DiffStride2d, DiffStride3d
from diffstride.layers.converted import CONVERTED, Converted, ConvertedIdentity, Following
from diffstride.tools.conversion import ConversionReport, ConvertedSite
from diffstride.tools.cost import cost
from diffstride.tools.meetings import Grid, find_grids

KINDS = ("conv", "maxpool", "avgpool")
POOLINGS = ("keep", "replace")
LAYERS = {1: DiffStride1d, 2: DiffStride2d, 3: DiffStride3d}


def convert(
    model: nn.Module,
    example_input: Tensor,
    *,
    kinds: Sequence[str] = KINDS,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    stride: float | Sequence[float] | None = None,
    smoothness: float = 4.0,
    norm: str = "forward",
    pooling: str = "keep",
    groups: Sequence[Sequence[str]] | None = None,
    **options: Any,
) -> tuple[nn.Module, ConversionReport]:
    """A copy of a network whose strides are learned, and a report of what was changed.

    Every strided convolution loses its stride and is followed by a :class:`DiffStride2d` (or 1d,
    3d) with that stride; poolings likewise. Weights keep their names, so that a state dict of the
    network loads into its copy. The network is run once, to see which branches meet: layers whose
    outputs are added, multiplied or put side by side share one learnable stride, so that their
    sizes agree whatever is learned.

    Args:
        model: any network that takes one tensor.
        example_input: a batch for it, large enough that nothing shrinks to one sample.
        kinds: of layers to convert: ``"conv"``, ``"maxpool"``, ``"avgpool"``.
        include: only these layers, by name or pattern (``"layer2.*"``).
        exclude: all but these.
        stride: the initial stride; that of each layer unless given.
        smoothness, norm: of the new layers. ``norm="forward"`` keeps the mean of features, which is
            what trained weights expect.
        pooling: ``"keep"`` pools at every sample before downsampling, ``"replace"`` does not pool.
        groups: names of layers that share a stride, where more are to than must.
        options: every other argument of :class:`DiffStride2d`.

    Raises:
        ValueError: for what can't be converted, with the name of the layer and what to do.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    >>> converted, report = convert(model, torch.rand(1, 3, 32, 32), smoothness=1.0)
    >>> print(report)
    site  before               now followed by     group  size before  size now
    0     Conv2d, stride 2     DiffStride2d(2, 2)  1      16 × 16      18 × 18
    2     MaxPool2d, stride 2  DiffStride2d(2, 2)  2      8 × 8        10 × 10
    0.0553 M MACs before, 0.4883 M now
    """
    arguments.check_choice(pooling, POOLINGS, "pooling")
    for kind in kinds:
        arguments.check_choice(kind, KINDS, "kinds")
    converted = copy.deepcopy(model)
    sites = _sites(converted, kinds, include, exclude)
    if not sites:
        warnings.warn(
            "nothing was converted: the model has no strided layer of these kinds and names",
            stacklevel=2,
        )
        return converted, ConversionReport((), 0, 0)
    uses = [
        (name, read, made)
        for name, read, made in find_grids(converted, example_input, sites)
        # A pooling over everything, whatever it calls its stride, stays one.
        if isinstance(sites[name], _ConvNd) or any(n > 1 for n in made.size)
    ]
    _check_sizes(uses, sites)
    together = _groups(uses, groups)
    before = {name: tuple(made.size) for name, _, made in uses}
    descriptions = {name: _describe(sites[name]) for name in before}
    make = {"smoothness": smoothness, "norm": norm, **options}
    for group in together:
        _convert_group(converted, group, uses, stride, pooling, make)
    after = _run(converted, example_input, [name for group in together for name in group])
    number = {name: i for i, group in enumerate(together, 1) for name in group}
    modules = dict(converted.named_modules())
    report = ConversionReport(
        tuple(
            ConvertedSite(
                name,
                descriptions[name],
                _describe_new(modules[name]),
                number[name],
                before[name],
                after[name],
            )
            for name in before
        ),
        cost(model, tuple(example_input.shape[1:])).macs,
        cost(converted, tuple(example_input.shape[1:])).macs,
    )
    return converted, report


def _base(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch that a layer is of, if it is one that can be converted."""
    return next((kind for kind in type(module).__mro__ if kind in CONVERTED), None)


def _strides(module: Any, axes: int) -> tuple[int, ...]:
    stride = module.stride
    return tuple(stride) if isinstance(stride, tuple | list) else (stride,) * axes


def _sites(
    model: nn.Module, kinds: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str]
) -> dict[str, nn.Module]:
    """The layers to convert, by name."""
    found = {}
    for name, module in model.named_modules():
        wanted = include is None or any(fnmatch(name, pattern) for pattern in include)
        if not wanted or any(fnmatch(name, pattern) for pattern in exclude):
            continue
        if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
            if max(module.stride) > 1:
                raise ValueError(
                    f"{name} is a transposed convolution, whose size can't follow a stride that is "
                    f"learned: leave it out with exclude=[{name!r}], and convert what comes after "
                    f"the last of them, or nothing that meets its output"
                )
        base = _base(module)
        if base is None:
            continue
        kind, axes, _ = CONVERTED[base]
        if kind in kinds and max(_strides(module, axes)) > 1:
            if type(module).forward is not base.forward:
                raise ValueError(
                    f"{name} is a {type(module).__name__}, which does more than a {base.__name__}: "
                    f"leave it out with exclude=[{name!r}]"
                )
            if getattr(module, "return_indices", False):
                raise ValueError(
                    f"{name} returns indices, which say nothing after downsampling: leave it out "
                    f"with exclude=[{name!r}]"
                )
            found[name] = module
    return found


def _check_sizes(uses: list[tuple[str, Grid, Grid]], sites: dict[str, nn.Module]) -> None:
    """Raise a ValueError where a site makes a single sample: that could be of any size."""
    for name, read, made in uses:
        strides = _strides(sites[name], len(made.size))
        if any(m == 1 and s > 1 for m, s in zip(made.size, strides, strict=True)):
            raise ValueError(
                f"example_input is too small: {name} makes {'×'.join(map(str, made.size))} of "
                f"{'×'.join(map(str, read.size))}, and what meets it can't be told from its size; "
                f"give a larger one, or leave the layer out with exclude=[{name!r}]"
            )


def _groups(
    uses: list[tuple[str, Grid, Grid]], wanted: Sequence[Sequence[str]] | None
) -> list[list[str]]:
    """Names of sites that make one size, in the order they run."""
    grids: dict[str, Grid] = {}
    for name, _, made in uses:
        grid = made.found()
        stranger = next((m for m in grid.makers if m.startswith("[")), None)
        if stranger is not None:
            raise ValueError(
                f"the output of {name} meets that of {stranger[1:-1]}, which no stride can make "
                f"agree with it: leave it out with exclude=[{name!r}]"
            )
        if name in grids:  # one layer, used again
            grids[name].found().join(grid)
        grids[name] = grid
    for names in wanted or ():
        for name in names:
            if name not in grids:
                raise ValueError(f"groups has {name!r}, which is no layer that is converted")
    own = {name: i for i, names in enumerate(wanted or ()) for name in names}
    for (name, grid), (other, also) in itertools.combinations(grids.items(), 2):
        apart = wanted is not None and own.get(name, name) != own.get(other, other)
        if apart and grid.found() is also.found():
            raise ValueError(
                f"{name} and {other} meet, and must be in one group; groups has them apart"
            )
    together: dict[Any, list[str]] = {}
    for name, grid in grids.items():
        together.setdefault(own.get(name, grid.found()), []).append(name)
    return list(together.values())


def _convert_group(
    model: nn.Module,
    names: list[str],
    uses: list[tuple[str, Grid, Grid]],
    stride: float | Sequence[float] | None,
    pooling: str,
    options: dict[str, Any],
) -> None:
    leader: Converted | None = None
    shape: Any = None
    for name in names:
        module = model.get_submodule(name)
        base = _base(module)
        assert base is not None
        kind, axes, made = CONVERTED[base]
        own = _strides(module, axes)
        read = next(read for use, read, _ in uses if use == name).found()
        taken = _taken(module, axes) if kind == "conv" or pooling == "keep" else (0,) * axes
        if kind != "conv" and pooling == "replace":
            site: Any = ConvertedIdentity()
            _replace(model, name, site)
        else:
            site = module
            site.__class__ = made
            site.stride = (1,) * axes
        if leader is None:
            layer = LAYERS[axes](own if stride is None else stride, **options)
            parameter = next(module.parameters(), None)
            if parameter is not None:
                layer = layer.to(parameter.device)
            site.downsample = layer
            leader, shape = site, (read, taken, own)
        elif shape == (read, taken, own):
            # The same size in, so the same size out: one layer serves both.
            site.downsample = leader.downsample
        else:
            site.downsample = Following(leader, [a / b for a, b in zip(own, shape[2], strict=True)])
        site.train(model.training)


def _taken(module: Any, axes: int) -> tuple[int, ...]:
    """By how much a layer without its stride makes each axis shorter."""

    def per_axis(name: str, otherwise: int) -> tuple[int, ...]:
        value = getattr(module, name, otherwise)
        if value == "valid":
            return (0,) * axes
        return tuple(value) if isinstance(value, tuple | list) else (value,) * axes

    kernel, padding, dilation = (
        per_axis(name, otherwise)
        for name, otherwise in (("kernel_size", 1), ("padding", 0), ("dilation", 1))
    )
    return tuple(d * (k - 1) - 2 * p for k, p, d in zip(kernel, padding, dilation, strict=True))


def _replace(model: nn.Module, name: str, new: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)


def _run(model: nn.Module, example: Tensor, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The sizes that sites make now; whatever can't take them is named."""
    running: list[str] = []
    sizes: dict[str, tuple[int, ...]] = {}
    modules = dict(model.named_modules())
    hooks = []
    for name, module in modules.items():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))

        def leave(_module: nn.Module, _args: Any, output: Any, name: str = name) -> None:
            running.pop()
            if name in names:
                sizes[name] = tuple(output.shape[2:])

        hooks.append(module.register_forward_hook(leave))
    try:
        with torch.no_grad(), _evaluating(model):
            model(example)
    except (RuntimeError, ValueError) as error:
        name = running[-1] if running else ""
        raise ValueError(
            f"{name or 'the model'} ({type(modules[name]).__name__}) can't take what comes to it "
            f"now: sizes are others after conversion, and change while strides learn. Put a "
            f"pooling over everything before it (nn.AdaptiveAvgPool2d(1)), or leave out layers "
            f"with exclude. It said: {error}"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return sizes


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _describe(module: nn.Module) -> str:
    base = _base(module)
    assert base is not None
    strides = _strides(module, CONVERTED[base][1])
    stride = str(strides[0]) if len(set(strides)) == 1 else "×".join(map(str, strides))
    return f"{type(module).__name__}, stride {stride}"


def _describe_new(module: nn.Module) -> str:
    layer: Any = module.downsample
    if isinstance(layer, Following):
        return "what its group makes"
    return f"{type(layer).__name__}({', '.join(f'{s:g}' for s in layer.strides)})"
