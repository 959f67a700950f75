"""Networks come back from their folders as they were, or not at all."""

import builtins
import copy
import hashlib
import json
import sys
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import pytest
import safetensors.torch
import torch
from torch import nn

from diffstride import convert, freeze, models
from diffstride.layers import DiffStrideNd
from diffstride.models.pretrained import read_config
from tests.damage import damages

OTHER_KINDS = ("spectral", "strided", "max")


def small(name="resnet18", **options):
    """A network whose strides and statistics are not those that it began with."""
    several = {"pitch": 3, "family": 3}  # not in the order of the alphabet
    options = {"num_classes": several if name == "audio_cnn" else 5, "width": 0.0625, **options}
    model = models.create(name, smoothness=2.0, **options)
    for module in model.modules():
        if isinstance(module, DiffStrideNd):
            with torch.no_grad():
                module.stride.add_(torch.rand_like(module.stride))
    inputs = model.created_with["in_channels"]
    for _ in range(2):
        model(torch.rand(4, inputs, *[32] * model.created_with["dims"]))
    return model.eval()


def outputs(model, x):
    with torch.no_grad():
        found = model(x)
    return found if isinstance(found, dict) else {"": found}


def same(a, b):
    return [*a] == [*b] and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("name", "downsampling"),
    [*((name, "diffstride") for name in models.list()), *(("resnet18", k) for k in OTHER_KINDS)],
)
def test_every_network_comes_back_bit_by_bit(name, downsampling, tmp_path):
    model = small(name, downsampling=downsampling).train()
    assert models.save_pretrained(model, tmp_path / "a" / "b") == tmp_path / "a" / "b"
    before = torch.get_rng_state()
    loaded = models.from_pretrained(str(tmp_path / "a" / "b"))
    assert torch.equal(torch.get_rng_state(), before)
    assert not loaded.training
    assert loaded.created_with == model.created_with
    x = torch.rand(2, model.created_with["in_channels"], *[32] * model.created_with["dims"])
    assert same(outputs(loaded, x), outputs(model.eval(), x))
    strides = [
        [m.strides for m in n.modules() if isinstance(m, DiffStrideNd)] for n in (model, loaded)
    ]
    assert strides[0] == strides[1]
    assert bool(strides[0]) == (downsampling == "diffstride")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for name, p in loaded.named_parameters() if p.requires_grad} == trained


def test_arguments_of_all_kinds_are_kept_as_json_has_them(tmp_path):
    strides = (torch.tensor([2.5, 1.5]), Fraction(5, 2), range(2, 4))
    model = small(
        num_classes=5,
        strides=strides,
        min_stride=torch.tensor(1.25).item(),
        norm="forward",
        learnable=False,
        convention="symmetric",
    )
    kept = model.created_with
    assert kept == json.loads(json.dumps(kept))
    assert kept["strides"] == [[2.5, 1.5], 2.5, [2, 3]]
    loaded = models.from_pretrained(models.save_pretrained(model, tmp_path))
    x = torch.rand(1, 3, 32, 32)
    assert same(outputs(loaded, x), outputs(model, x))
    assert not any(m.stride.requires_grad for m in loaded.modules() if isinstance(m, DiffStrideNd))
    tasks = MappingProxyType({"b": 2, "a": 3})
    kept = models.create("audio_cnn", num_classes=tasks, width=0.0625).created_with
    assert [*kept["num_classes"].items()] == [("b", 2), ("a", 3)]


def test_precision_is_kept(tmp_path):
    model = small("resnet18", dims=1, in_channels=2).double()
    loaded = models.from_pretrained(models.save_pretrained(model, tmp_path))
    x = torch.rand(1, 2, 32, dtype=torch.float64)
    assert same(outputs(loaded, x), outputs(model, x))
    assert {p.dtype for p in loaded.parameters()} == {torch.float64}


def test_there_are_two_files_of_numbers_and_text(tmp_path):
    metadata = {"classes": ["chat", "été"], "nested": {"a": [1.5, None]}}
    models.save_pretrained(small(), tmp_path, metadata)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    assert sorted(tmp_path.iterdir()) == [config, weights]
    assert json.loads(config.read_text())["metadata"] == metadata
    content = weights.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert "stages.1.0.downsample.stride" in header
    # Who may read the one may read the other.
    assert weights.stat().st_mode == config.stat().st_mode


def branches():
    """One stride for two convolutions whose outputs meet, once converted."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.shortcut = nn.Conv2d(3, 4, 1, stride=2)

        def forward(self, x):
            return self.body(x) + self.shortcut(x)

    return Block()


def test_converted_networks_are_loaded_into_ones_that_are_built_alike(tmp_path):
    x = torch.rand(1, 3, 16, 16)
    model, _ = convert(branches(), x)
    strides = [p for name, p in model.named_parameters() if name.endswith("stride")]
    assert len(strides) == 1
    with torch.no_grad():
        strides[0].fill_(2.71828)
    models.save_pretrained(model, tmp_path)
    with pytest.raises(ValueError, match=r"create did not make.* give it as model="):
        models.from_pretrained(tmp_path)
    other, _ = convert(branches(), x)
    assert models.from_pretrained(tmp_path, other) is other
    assert same(outputs(other, x), outputs(model.eval(), x))
    assert other.shortcut.downsample.leader is other.body
    wrong = "has the weights of another network: "
    with pytest.raises(ValueError, match=wrong + r"body\.downsample\.stride is not of it"):
        models.from_pretrained(tmp_path, branches())
    models.save_pretrained(branches(), tmp_path)  # would leave strides as they are
    with pytest.raises(ValueError, match=wrong + r"no body\.downsample\.stride$"):
        models.from_pretrained(tmp_path, other)
    model.shortcut.downsample = copy.deepcopy(model.body.downsample)
    models.save_pretrained(model, tmp_path)  # two strides for one
    with pytest.raises(ValueError, match=wrong + r"shortcut\.downsample\.stride is not of it"):
        models.from_pretrained(tmp_path, other)


def test_two_weights_are_not_loaded_into_one(tmp_path):
    one = nn.Conv2d(3, 3, 1)
    models.save_pretrained(nn.Sequential(one, copy.deepcopy(one)), tmp_path)
    with pytest.raises(ValueError, match=r"1\.weight and 0\.weight differ and are one"):
        models.from_pretrained(tmp_path, nn.Sequential(one, one))


def with_another_head(model):
    model.head[-1] = nn.Linear(model.head[-1].in_features, 7)
    return model


def with_another_ramp(model):
    model.stages[1][0].downsample.smoothness = 1.0
    return model


@pytest.mark.parametrize(
    "change",
    [
        with_another_head,
        with_another_ramp,
        lambda model: freeze(model, (3, 32, 32)),
        lambda model: freeze(model, (3, 32, 32), integer_strides=True),
    ],
    ids=["head", "smoothness", "frozen", "whole strides"],
)
def test_what_was_changed_since_is_not_taken_for_what_was_asked_for(change, tmp_path):
    model = small()
    changed = change(copy.deepcopy(model))
    models.save_pretrained(changed, tmp_path)
    with pytest.raises(ValueError, match="or that was changed since"):
        models.from_pretrained(tmp_path)
    for name, parameter in model.named_parameters():
        if not name.endswith("stride"):  # on which the sizes of what is frozen depend
            nn.init.zeros_(parameter)
    loaded = models.from_pretrained(tmp_path, change(model))
    x = torch.rand(1, 3, 32, 32)
    assert same(outputs(loaded, x), outputs(changed.eval(), x))


def test_names_of_one_s_own_and_compilation_change_nothing(tmp_path):
    model = small()
    vars(model)["note"] = "of one's own"
    compiled = torch.compile(model, backend="eager")
    loaded = models.from_pretrained(models.save_pretrained(compiled, tmp_path))
    assert loaded.state_dict().keys() == model.state_dict().keys()


def damaged(name, content):
    def damage(folder):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(content(whole))

    return damage


def resealed(folder, **changes):
    """With digests of what is there, as if it had been saved so."""
    told = json.loads((folder / "config.json").read_text()) | changes
    weights = (folder / "model.safetensors").read_bytes()
    told = {**told, "weights_sha256": hashlib.sha256(weights).hexdigest()}
    del told["sha256"]
    told["sha256"] = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    (folder / "config.json").write_text(json.dumps(told))


def edited(**changes):
    def damage(folder):
        resealed(folder, **changes)

    return damage


def replaced(**options):
    def damage(folder):
        safetensors.torch.save_model(small(**options), str(folder / "model.safetensors"))
        resealed(folder)

    return damage


def rewritten(content):
    def damage(folder):
        damaged(WEIGHTS, content)(folder)
        resealed(folder)

    return damage


WEIGHTS, CONFIG = "model.safetensors", "config.json"


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: (f / CONFIG).unlink(), FileNotFoundError, "has no config.json: no network"),
        (lambda f: (f / WEIGHTS).unlink(), FileNotFoundError, "has no model.safetensors"),
        (damaged(CONFIG, lambda text: text[:30]), ValueError, "can't be read as JSON"),
        (damaged(CONFIG, lambda text: b"\xff" + text), ValueError, "can't be read as JSON"),
        (damaged(CONFIG, lambda text: b"[]"), ValueError, "is not of diffstride"),
        (damaged(CONFIG, lambda text: b'{"model_type": "a"}'), ValueError, "is not of diffstride"),
        (edited(version=1), ValueError, "has version 1, and this diffstride reads version 2"),
        (edited(model=[]), ValueError, "must have a model, arguments"),
        (edited(model={"name": "resnet19", "num_classes": 2}), ValueError, "got 'resnet19'"),
        (edited(model={"nam": "resnet18"}), ValueError, "can't be made: .*nam"),
        (rewritten(lambda x: b""), ValueError, "can't be read as safetensors"),
        (rewritten(lambda x: x[:-1]), ValueError, "can't be read as safetensors"),
        (rewritten(lambda x: b"x" * len(x)), ValueError, "can't be read as safetensors"),
        (
            replaced(num_classes=6),
            ValueError,
            r"another network: head\.1\.weight is \(6, 32\) and not \(5, 32\), and 1 more",
        ),
        (
            replaced(downsampling="max"),
            ValueError,
            r"network: no stages\.1\.0\.downsample\.stride, and 2 more",
        ),
        (
            replaced(name="audio_cnn"),
            ValueError,
            r"another network: no head\.1\.bias, and \d+ more$",
        ),
    ],
    ids=range(16),
)
def test_what_is_wrong_with_a_folder_is_said(damage, error, message, tmp_path):
    models.save_pretrained(small(), tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=message) as raised:
        models.from_pretrained(tmp_path)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_no_damage_is_accepted(name, tmp_path):
    model = small()
    models.save_pretrained(model, tmp_path, {"classes": ["ant", "bee"]})
    told = read_config(tmp_path)
    for kind, content in damages((tmp_path / name).read_bytes(), 300):
        (tmp_path / name).write_bytes(content)
        if name == CONFIG and is_json(content, told):
            continue  # the same, in other letters
        with pytest.raises(
            ValueError, match=f"{name} (was damaged|can't be|is not of|has version)"
        ):
            print(kind, models.from_pretrained(tmp_path))


def is_json(content, expected):
    try:
        return json.loads(content) == expected
    except ValueError:
        return False


def test_no_folder_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        models.from_pretrained(tmp_path / "nowhere")


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    models.save_pretrained(small(num_classes=5), tmp_path)

    def full(model, path):
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space left"):
        patched.setattr(safetensors.torch, "save_model", full)
        models.save_pretrained(small(num_classes=6), tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert models.from_pretrained(tmp_path).created_with["num_classes"] == 5


def test_a_folder_half_written_is_not_taken_for_a_whole_one(tmp_path, monkeypatch):
    models.save_pretrained(small(num_classes=5), tmp_path)
    replace = Path.replace

    def killed(self, target):
        if target.name == "config.json":
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", killed)
        models.save_pretrained(small(num_classes=6), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    with pytest.raises(FileNotFoundError, match="or half of one"):
        models.from_pretrained(tmp_path)
    models.save_pretrained(small(num_classes=6), tmp_path)
    assert models.from_pretrained(tmp_path).created_with["num_classes"] == 6


def test_metadata_with_numbers_as_names_comes_back_with_words(tmp_path):
    """In JSON "10" comes before "2", which as numbers come the other way round."""
    metadata = {"id2label": {2: "a", 10: "b"}, 3: (1, 2), "x": {None: 1, "y": 2, True: 3}}
    model = models.create("resnet18", num_classes=2, width=0.0625)
    models.save_pretrained(model, tmp_path, metadata)
    models.from_pretrained(tmp_path)
    found = read_config(tmp_path)["metadata"]
    assert found == {
        "id2label": {"2": "a", "10": "b"},
        "3": [1, 2],
        "x": {"null": 1, "y": 2, "true": 3},
    }


def test_metadata_that_json_has_not_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match="JSON"):
        models.save_pretrained(small(), tmp_path / "a", {"classes": {1, 2}})
    assert not (tmp_path / "a").exists()


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("safetensors"):
            raise ModuleNotFoundError("no", name="safetensors")
        return original(name, *args, **options)

    monkeypatch.delitem(sys.modules, "safetensors.torch")
    monkeypatch.setattr(builtins, "__import__", without)
    for use in (
        lambda: models.save_pretrained(small(), tmp_path),
        lambda: models.from_pretrained("a"),
    ):
        with pytest.raises(ImportError, match=r"safetensors: pip install 'diffstride\[share\]'"):
            use()
