"""Write a network as a file that runs anywhere."""

import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diffstride.analysis.observing import tensors_in
from diffstride.analysis.restoring import check_copyable, copied
from diffstride.core.tracing import OLD_TORCH
from diffstride.core.work import fft_macs
from diffstride.files import replacing
from diffstride.layers.block_products import LARGEST_BYTES, BlockProducts, work
from diffstride.layers.frozen import Frozen
from diffstride.layers.resizer import resizers
from diffstride.surgery.freeze import freeze

# About how many multiply-accumulates of products take as long as one of the N·log₂N steps of an
# FFT: benchmarks/long.py times both, and how the length of an axis can be divided changes it.
FFT_WORK = 10


def export_onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    input_size: Sequence[int],
    *,
    dynamic_batch: bool = True,
    metadata: Mapping[str, str] | None = None,
    tolerance: float = 1e-4,
) -> Path:
    """Freeze a network and write it as ONNX, by matrix products alone.

    Few runtimes have an FFT, and theirs is slow: long axes are done by products of small matrices,
    whose constants stay under 5 MB for an axis of up to some ten thousands of samples.
    The file is run with onnxruntime and compared with the model before it gets its name: one that
    is there is right.

    Args:
        model: any network that takes one tensor; its learnable strides are frozen.
        path: of the file.
        input_size: of one example, (channels, *spatial).
        dynamic_batch: whether batches may have any number of examples; otherwise they have one.
        metadata: what the file is to say besides, the names of classes for one.
        tolerance: how far an output may be from the model's, relative to the largest.

    Raises:
        RuntimeError: if the file computes something else than the model, or torch is older than
            2.7.
        ImportError: if the extra ``export`` is not installed.

    Warns:
        UserWarning: for long axes that make the file large, or slower than the model.

    >>> import tempfile
    >>> from diffstride import DiffStride2d
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), DiffStride2d(2.0, smoothness=1.0))
    >>> export_onnx(model, f"{tempfile.mkdtemp()}/model.onnx", (3, 16, 16)).name
    'model.onnx'
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"writing ONNX needs {error.name}: pip install 'diffstride[export]'"
        ) from error

    check_copyable(model, "export")
    frozen = freeze(model, input_size) if any(resizers(model)) else copied(model).eval()
    if OLD_TORCH:  # whose exporter fails on a batch norm with the onnxscript that pip installs
        raise RuntimeError(f"writing ONNX needs torch 2.7 or later: this is {torch.__version__}")
    frozen = frozen.cpu().float()  # which is what runs anywhere
    generator = torch.Generator().manual_seed(0)
    numbers = (2, 1, 3) if dynamic_batch else (1,)
    batches = [torch.rand(n, *input_size, generator=generator) for n in numbers]
    with torch.no_grad():  # before anything is changed for the file
        expected = [tensors_in(frozen(x)) for x in batches]
    for module in frozen.modules():
        if isinstance(module, Frozen):
            module.replace_fft()
    _warn_of_large_axes(frozen)
    path = Path(path)
    with replacing(path) as unchecked:
        written = _export(frozen, batches[0], dynamic_batch).model_proto
        for name, text in (metadata or {}).items():
            written.metadata_props.add(key=name, value=text)
        onnx.save(written, unchecked)
        session = onnxruntime.InferenceSession(unchecked, providers=["CPUExecutionProvider"])
        for x, outputs in zip(batches, expected, strict=True):
            _compare(session, x, outputs, tolerance)
    return path


def _warn_of_large_axes(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if not isinstance(module, BlockProducts):
            continue
        layer = name.rpartition(".")[0] or "the model"
        size, kept, blocks = module.size, module.kept, module.before.number
        nbytes = sum(constants.nbytes for constants in module.buffers())
        if nbytes > LARGEST_BYTES:
            warnings.warn(
                f"{layer} adds {nbytes / 1e6:.0f} MB to the file: without an FFT, an axis of "
                f"{size} samples that becomes {kept} needs many constants; fewer for shorter "
                f"inputs, sizes divisible by {blocks}, or a layer with size_multiple={blocks}",
                stacklevel=3,
            )
        macs, _ = work(module.before.size, module.after.size, blocks)
        longer = macs / (FFT_WORK * fft_macs(size, kept, size, kept))
        if longer > 2:
            warnings.warn(
                f"{layer} will take about {longer:.0f} times as long in the file as by FFT: an "
                f"axis of {size} samples that becomes {kept} is done by matrix products. Larger "
                f"strides and shorter inputs need fewer; diffstride.freeze keeps the FFT",
                stacklevel=3,
            )


def _export(model: nn.Module, x: Tensor, dynamic_batch: bool) -> Any:
    """Return a network as ONNX, without what the exporter has to say of itself."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                model,
                (x,),
                input_names=["input"],
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},) if dynamic_batch else None,
                verbose=False,
            )
    finally:
        logger.setLevel(level)


def _compare(session: Any, x: Tensor, expected: Sequence[Tensor], tolerance: float) -> None:
    """Raise a RuntimeError unless the file computes what the model did."""
    outputs = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for a, b in zip(expected, outputs, strict=True):
        off = (a - torch.from_numpy(b)).abs().max() / a.abs().max().clamp(min=1e-12)
        if not off <= tolerance:
            raise RuntimeError(f"the exported file is off by {off:.2g} of the model's outputs")
