"""What a network costs at its present strides, and in which direction that changes with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from diffstride.analysis.cost_model import CostModel
from diffstride.analysis.cost_record import Cost

if TYPE_CHECKING:
    from diffstride.analysis.timings import Timings


def cost(model: nn.Module, input_size: Sequence[int], timings: "Timings | None" = None) -> Cost:
    """Return multiply-accumulates, activations and parameters of a network at its present strides.

    Counted for one example in eval mode, at the sizes that really come out: convolutions, linear
    layers and the downsampling itself, which is one matrix product an axis, or on a long axis an
    FFT, counted as N·log₂N. Activations are what these layers put out. Normalisations, activation
    functions and poolings count nothing, nor do products that are no layer. For the cost at many
    strides or input sizes, make a :class:`CostModel`, which runs the network once.

    Args:
        model: any module that takes one tensor. It is run once, without computing where that is
            possible, and left as it was: the same tensors, modes and hooks. Of a network that is
            wrapped for training in parallel, or compiled, the one inside is counted.
        input_size: of one example, (channels, *spatial).
        timings: of this network, for milliseconds as well; see :class:`diffstride.Timings`.

    Returns:
        A record with ``macs``, ``activations``, ``parameters``, ``ms`` where there are timings, and
        the same of each of its ``layers``; it prints as a line.

    Raises:
        ValueError: if the input size is none, or the network can't be run.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), DiffStride2d(2.0), nn.Conv2d(8, 8, 1))
    >>> print(cost(model, (3, 32, 32)))
    602 k MACs, 17.4 k activations, 298 parameters
    >>> [layer.macs for layer in cost(model, (3, 32, 32)).layers]
    [221184, 344064, 36864]
    """
    return CostModel(model, input_size).at(timings=timings)


def soft_macs(model: nn.Module | CostModel, input_size: Sequence[int] | None = None) -> Tensor:
    """Return the multiply-accumulates of :func:`cost`, with a gradient in the strides.

    The value is the exact count. The gradient is that of sizes N/S + 2R that need not be whole nor
    stop at N, so that it points towards larger strides everywhere, also where a small step changes
    no size. For a budget of B multiply-accumulates, add ``(soft_macs(model, size) / B - 1).relu()``
    to the loss.

    Args:
        model: the network, which is run each time; or a :class:`CostModel` of it, which takes
            microseconds, and knows the input size.
        input_size: of one example, (channels, *spatial).

    Returns:
        A scalar in double precision, differentiable in the strides.

    Raises:
        ValueError: if a network is given without an input size, or can't be run.

    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(DiffStride2d(2.0), nn.Conv2d(8, 8, 3))
    >>> macs = soft_macs(model, (8, 32, 32))
    >>> macs.item() == cost(model, (8, 32, 32)).macs
    True
    >>> macs.backward()
    >>> bool((model[0].stride.grad < 0).all())
    True
    """
    if not isinstance(model, CostModel):
        if input_size is None:
            raise ValueError("input_size must be given with a network, got None")
        model = CostModel(model, input_size)
    macs, slopes = model.gradient("macs", input_size=input_size)
    # Counts are exact: single precision would round those above 2²⁴.
    result = torch.tensor(macs, dtype=torch.float64)
    for name, layer in model.layers.items():
        for axis, slope in enumerate(slopes[name]):
            if slope:
                stride = layer.differentiable_strides()[axis]
                # Apple's GPUs (mps) have no double precision.
                stride = stride.to(torch.float32 if stride.device.type == "mps" else result.dtype)
                # Plus 0, with a slope.
                result = result.to(stride) + (stride - stride.detach()) * slope
    return result
