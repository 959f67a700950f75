"""Converted networks of transformers are trained, saved and read by it, and come back whole."""

import copy
import json
import sys
import warnings

import pytest
import torch
from torch import nn

from diffstride import convert, freeze, models, parameter_groups
from diffstride.layers import apply_conversion
from diffstride.layers.diffstride import DiffStrideNd

pytestmark = pytest.mark.third_party

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

SMALL = {"hidden_sizes": [4, 8], "depths": [1, 1], "num_labels": 3}
NETWORKS = {
    "ResNet": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=4, layer_type="basic", **SMALL)
    ),
    "ConvNeXt": lambda: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(
            num_stages=2, patch_size=2, layer_scale_init_value=1.0, initializer_range=0.5, **SMALL
        )
    ),
    "MobileNetV2": lambda: transformers.MobileNetV2ForImageClassification(
        transformers.MobileNetV2Config(depth_multiplier=0.1, num_labels=3)
    ),
}


def converted(name, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NETWORKS[name]()
    size = 64 if name == "MobileNetV2" else 32
    x = torch.rand(4, 3, size, size)
    return convert(model, x, smoothness=1.0, **options)[0], x


def strides(model):
    return [m.stride.detach().clone() for m in model.modules() if isinstance(m, DiffStrideNd)]


def outputs(model, x):
    with torch.no_grad():
        return model.eval()(x).logits


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    transformers.utils.logging.disable_progress_bar()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")


def trainer(model, x, folder, steps):
    rows = [{"pixel_values": image, "labels": i % 3} for i, image in enumerate(x)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_steps=1,
        save_strategy="steps",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    optimiser = torch.optim.SGD(parameter_groups(model, lr=0.1, weight_decay=0.0))
    schedule = torch.optim.lr_scheduler.ConstantLR(optimiser, 1.0)
    return transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, optimizers=(optimiser, schedule)
    )


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_trainer_trains_saves_and_resumes(name, tmp_path):
    model, x = converted(name)
    start = copy.deepcopy(model)
    before = strides(model)
    trainer(model, x, tmp_path / "whole", steps=2).train()
    assert all(not torch.equal(a, b) for a, b in zip(strides(model), before, strict=True))
    checkpoint = tmp_path / "whole" / "checkpoint-2"
    again = models.from_pretrained(checkpoint)
    assert type(again) is type(model)
    assert not again.training
    assert torch.equal(outputs(again, x), outputs(model, x))
    # One step, then the other from the checkpoint of the first.
    resumed = trainer(start, x, tmp_path / "whole", steps=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-1"))
    torch.testing.assert_close(outputs(start, x), outputs(model, x))
    resumed.save_model(str(tmp_path / "last"))
    assert torch.equal(outputs(models.from_pretrained(tmp_path / "last"), x), outputs(start, x))
    # What came back is saved and read again like the first.
    again.save_pretrained(tmp_path / "again")
    assert torch.equal(outputs(models.from_pretrained(tmp_path / "again"), x), outputs(model, x))


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "5KB"}], ids=["one file", "shards"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_folder_comes_back_with_every_option(options, dtype, tmp_path):
    made, x = converted(
        "ResNet", pooling="replace", stride=1.7, shared=True, max_stride=3.0, dtype=torch.float64
    )
    model = made.to(dtype)
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, DiffStrideNd):
                layer.stride.add_(0.3)
    model.save_pretrained(tmp_path, **options)
    assert len(list(tmp_path.glob("*.safetensors"))) >= (2 if options else 1)
    again = models.from_pretrained(tmp_path)
    assert str(again) == str(model)
    assert torch.equal(outputs(again, x.to(dtype)), outputs(model, x.to(dtype)))


def test_only_the_copy_has_the_record():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = NETWORKS["ResNet"]()
    first, report = convert(model, torch.rand(1, 3, 32, 32), include=["*pooler"])
    assert not hasattr(model.config, "diffstride")
    assert first.config.diffstride == json.loads(json.dumps(report.record))
    # In several steps, the record has all of them.
    second, more = convert(first, torch.rand(1, 3, 32, 32))
    names = [site["name"] for site in (*report.record["sites"], *more.record["sites"])]
    assert [site["name"] for site in second.config.diffstride["sites"]] == names
    assert len(first.config.diffstride["sites"]) == len(report.record["sites"])


def test_a_config_of_a_converted_network_is_no_conversion(tmp_path):
    """A network that is built of it is plain, until it is converted itself: once."""
    model, x = converted("ResNet")
    model.save_pretrained(tmp_path / "first")
    plain = type(model)(model.config)
    own = [site["name"] for site in model.config.diffstride["sites"]]
    # A part of it, then the rest: the record has what is converted, and that once.
    for include in (own[:1], None):
        plain, _ = convert(plain, x, smoothness=1.0, include=include)
        named = [site["name"] for site in plain.config.diffstride["sites"]]
        assert sorted(named) == sorted(include or own)
    plain.save_pretrained(tmp_path / "second")
    loaded = models.from_pretrained(tmp_path / "second")
    assert torch.equal(outputs(loaded, x), outputs(plain, x))
    with pytest.warns(UserWarning, match="nothing was converted"):
        nothing, _ = convert(type(model)(model.config), x, include=["nowhere"])
    assert not hasattr(nothing.config, "diffstride")
    assert hasattr(model.config, "diffstride")


@pytest.mark.parametrize("integer_strides", [False, True])
def test_what_is_frozen_has_no_record(integer_strides):
    model, _ = converted("ResNet")
    frozen = freeze(model, (3, 32, 32), integer_strides=integer_strides)
    assert not hasattr(frozen.config, "diffstride")
    assert not hasattr(frozen.resnet.config, "diffstride")
    assert hasattr(model.config, "diffstride")


class OwnNet(transformers.ResNetForImageClassification):
    """A class that transformers does not know by name."""

    def __init__(self, config):
        super().__init__(config)
        self.scale = nn.Parameter(torch.tensor(1.0))


@pytest.mark.parametrize("already", [False, True])
def test_a_class_of_one_s_own_is_given(already, tmp_path):
    torch.manual_seed(0)
    x = torch.rand(2, 3, 32, 32)
    model, report = convert(OwnNet(NETWORKS["ResNet"]().config), x, smoothness=1.0, stride=1.7)
    with torch.no_grad():
        model.scale.fill_(3.0)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"\['OwnNet'\].* has no network .* give it as model="):
        models.from_pretrained(tmp_path)
    other = OwnNet(NETWORKS["ResNet"]().config)
    if already:
        apply_conversion(other, report.record)
    loaded = models.from_pretrained(tmp_path, other)
    assert loaded is other
    assert not loaded.training
    assert loaded.scale == 3.0
    assert torch.equal(outputs(loaded, x), outputs(model, x))
    loaded.save_pretrained(tmp_path / "again")
    again = models.from_pretrained(tmp_path / "again", OwnNet(NETWORKS["ResNet"]().config))
    assert torch.equal(outputs(again, x), outputs(model, x))
    with pytest.raises(ValueError, match=r"must be a network of the class OwnNet .* a Identity"):
        models.from_pretrained(tmp_path, nn.Identity())
    with pytest.raises(ValueError, match="has the weights of another network: missing"):
        models.from_pretrained(tmp_path, OtherNet(NETWORKS["ResNet"]().config))


class OtherNet(OwnNet):
    def __init__(self, config):
        super().__init__(config)
        self.more = nn.Linear(3, 3)


def saved(folder):
    model, _ = converted("ResNet")
    model.save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


def rewrite(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda folder, c: (folder / "model.safetensors").unlink(),
            FileNotFoundError,
            r"has none of model\.safetensors and .*index\.json: save the network",
        ),
        (
            lambda folder, c: rewrite(folder, c | {"hidden_sizes": [4, 12]}),
            ValueError,
            r"(?s)can't be loaded as a ResNetForImageClassification.*size",
        ),
        (
            lambda folder, c: rewrite(folder, c | {"depths": [1, 2]}),
            ValueError,
            "weights of another network: missing resnet",
        ),
        (
            lambda folder, c: rewrite(folder, c | {"architectures": ["NoSuchNet"]}),
            ValueError,
            r"has architectures \['NoSuchNet'\], and transformers .* has no network",
        ),
        (
            lambda folder, c: rewrite(folder, c | {"diffstride": {"version": 99}}),
            ValueError,
            "record of a conversion must have version 1",
        ),
        (
            lambda folder, c: rewrite(
                folder,
                c
                | {
                    "diffstride": {
                        "version": 1,
                        "sites": [{**c["diffstride"]["sites"][0], "name": "resnet.nowhere"}],
                    }
                },
            ),
            ValueError,
            r"has a layer resnet\.nowhere, and the network has none of that name",
        ),
        (
            lambda folder, c: rewrite(folder, c | {"diffstride": {**c["diffstride"], "sites": []}}),
            ValueError,
            r"weights of another network: unexpected resnet.*stride, and 2 more",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(change, error, message, tmp_path):
    change(tmp_path, saved(tmp_path))
    with pytest.raises(error, match=message):
        models.from_pretrained(tmp_path)


def test_transformers_is_named_where_it_is_missing(tmp_path, monkeypatch):
    saved(tmp_path)
    with pytest.raises(ValueError, match="says itself how its network is built"):
        models.from_pretrained(tmp_path, nn.Identity())

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"transformers is not installed: pip install tr"):
        models.from_pretrained(tmp_path)
