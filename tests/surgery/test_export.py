"""Files compute what the network does, with matrix products and nothing newer."""

import builtins
import re
import sys
import warnings

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from diffstride import (
    DiffStride1d,
    DiffStride2d,
    convert,
    export_onnx,
    freeze,
    models,
    parameter_groups,
)
from diffstride.core.tracing import OLD_TORCH
from diffstride.layers import block_products
from diffstride.surgery import export
from tests.surgery.third_party_networks import MODELS, example, tensor

needs_exporter = pytest.mark.skipif(OLD_TORCH, reason="torch 2.6 can't write ONNX, and is told so")
pytestmark = pytest.mark.third_party


def operations(path):
    return {node.op_type for node in onnx.load(path).graph.node}


@needs_exporter
@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_converted_trained_frozen_and_exported(name, tmp_path):
    make, dims = MODELS[name]
    torch.manual_seed(0)
    x = example(dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = convert(make(), x, smoothness=2.0)
    optimiser = torch.optim.SGD(parameter_groups(model, lr=0.01, weight_decay=0.0), momentum=0.9)
    model.train()
    for _ in range(3):
        optimiser.zero_grad()
        tensor(model(torch.rand_like(x))).square().mean().backward()
        optimiser.step()
    model.eval()
    path = export_onnx(model, tmp_path / "model.onnx", tuple(x.shape[1:]))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
    with torch.no_grad():
        expected = tensor(model(x))
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max().clamp(min=1)
    written = onnx.load(path)
    # What onnxruntime 1.20 reads, of November 2024.
    assert written.ir_version <= 10
    assert {o.domain: o.version for o in written.opset_import}[""] <= 21
    used = operations(path)
    assert "MatMul" in used
    assert not {op for op in used if "DFT" in op or "FFT" in op or op == "STFT"}


@needs_exporter
def test_own_networks_carry_their_metadata_and_take_any_batch(tmp_path):
    model = models.create("audio_cnn", num_classes=3, in_channels=1, width=0.0625)
    path = export_onnx(model, tmp_path / "a" / "model.onnx", (1, 40, 32), metadata={"classes": "x"})
    assert {p.key: p.value for p in onnx.load(path).metadata_props}["classes"] == "x"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for n in (1, 5):
        (scores,) = session.run(None, {"input": torch.rand(n, 1, 40, 32).numpy()})
        assert scores.shape == (n, 3)
    fixed = export_onnx(model, tmp_path / "one.onnx", (1, 40, 32), dynamic_batch=False)
    session = onnxruntime.InferenceSession(fixed, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == [1, 1, 40, 32]


@needs_exporter
def test_a_network_without_strides_is_exported_as_it_is(tmp_path):
    path = export_onnx(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), tmp_path / "m", (3, 8, 8))
    assert operations(path) <= {"Conv", "Relu"}


@needs_exporter
def test_a_file_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    def other(model, x, dynamic_batch):
        return export_as_is(nn.Sequential(model, nn.Softplus()), x, dynamic_batch)

    export_as_is = export._export
    monkeypatch.setattr(export, "_export", other)
    with pytest.raises(RuntimeError, match="the exported file is off by"):
        export_onnx(nn.Conv2d(3, 4, 3), tmp_path / "model.onnx", (3, 8, 8))
    assert not list(tmp_path.iterdir())


@needs_exporter
def test_what_is_missing_is_named(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *args, **options):
        if name == "onnxruntime":
            raise ModuleNotFoundError("no", name=name)
        return original(name, *args, **options)

    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"needs onnxruntime: pip install 'diffstride\[export\]'"):
        export_onnx(nn.Conv2d(3, 4, 3), tmp_path / "model.onnx", (3, 8, 8))


@needs_exporter
@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (DiffStride1d(4.0), (16000,)),
        (DiffStride1d(4.003), (16000,)),
        (DiffStride1d(4.0), (16001,)),
        (DiffStride1d(4.0), (44100,)),
        (DiffStride2d((2.2, 4.0)), (64, 1000)),
        (DiffStride2d(4.0), (2000, 24)),
    ],
    ids=str,
)
def test_long_axes_are_small_files_of_products(layer, size, tmp_path):
    path = export_onnx(layer, tmp_path / "long.onnx", (3, *size))
    assert path.stat().st_size < 5e6
    # Nothing but products, and what moves numbers in memory.
    moves = {"Reshape", "Transpose", "Gather", "Concat", "Shape", "Slice", "Squeeze"}
    assert operations(path) <= {"MatMul", "Gemm", *moves}
    x = torch.randn(2, 3, *size)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
    with torch.no_grad():
        expected = layer.eval()(x)
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()


@needs_exporter
@pytest.mark.parametrize(
    ("stride", "size", "slow"),
    [(1.05, 64000, True), (1.0, 16000, True), (4.0, 16000, False), (4.0, 44100, False)],
)
def test_long_axes_that_products_are_slow_for_say_why(stride, size, slow):
    frozen = freeze(nn.Sequential(nn.ReLU(), DiffStride1d(stride)), (1, size))
    frozen[1].replace_fft()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export._warn_of_large_axes(frozen)
    told = [str(each.message) for each in caught if "times as long" in str(each.message)]
    kept = frozen[1].output_size[0]
    said = rf"1 will take about \d times as long .* axis of {size} samples that becomes {kept} is"
    assert len(told) == slow
    assert all(re.match(said, text) for text in told)


@needs_exporter
def test_files_that_must_be_large_say_why(tmp_path, monkeypatch):
    monkeypatch.setattr(block_products, "LARGEST_BYTES", 10_000)
    monkeypatch.setattr(export, "LARGEST_BYTES", 10_000)
    layers = nn.Sequential(nn.ReLU(), DiffStride1d(4.0))
    said = "1 adds 1 MB to the file.*4001 samples that becomes 1008.*a layer with size_multiple=112"
    with pytest.warns(UserWarning, match=said):
        export_onnx(layers, tmp_path / "long.onnx", (1, 4001))


def test_an_old_torch_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "OLD_TORCH", True)
    with pytest.raises(RuntimeError, match=r"writing ONNX needs torch 2\.7 or later: this is \d"):
        export.export_onnx(DiffStride2d(), tmp_path / "a.onnx", (3, 16, 16))
    assert not any(tmp_path.iterdir())
