"""What is predicted is what evaluation counts, from a run and from whatever is made of it."""

import builtins
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image

from diffstride import models
from diffstride.lab.cli import main
from diffstride.lab.data import images
from diffstride.lab.data.images import EncodedImages, read_images
from diffstride.lab.data.labelled_files import FilePaths
from diffstride.lab.inference import predict
from diffstride.lab.inference import trained_model as preparation
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.training import trained_run
from diffstride.lab.training.recipes import RECIPES
from tests.lab.inference.tiny_onnx import tiny_onnx
from tests.lab.training.generated_data import TINY_AUDIO, audio_pack, sound

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def digits_run(tmp_path_factory):
    """A run that has learned something, but not all."""
    folder = tmp_path_factory.mktemp("digits")
    tiny = "--model.width 0.0625 --data.limit 512 --data.batch_size 32 --trainer.epochs 2".split()
    words = [*tiny, "--optim.lr", "1e-2", "--out", str(folder), "--name", "run"]
    assert main(["train", "digits", *words]) == 0
    run = Run.open(folder / "run")
    # As if the last epoch had not been the best.
    shutil.copy(run.checkpoints / "epoch-00001.ckpt", run.best_file)
    return run.folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The digits that are tested on, their classes in their names."""
    folder = tmp_path_factory.mktemp("pictures")
    test = images.load_digits().test
    for i, (pixels, label) in enumerate(zip(test.images, test.labels.tolist(), strict=True)):
        Image.fromarray(pixels[0].numpy()).save(folder / f"{label}-{i:03}.png")
    return sorted(folder.iterdir())


def accuracy(found, label):
    """Of predictions, given the class of a file."""
    return sum(p.classes[0][0] == label(Path(p.file)) for p in found) / len(found)


def same(one, other):
    """Whether files, tasks and classes agree, and probabilities to 1e-4."""
    assert [(p.file, p.task) for p in one] == [(p.file, p.task) for p in other]
    for a, b in zip(one, other, strict=True):
        assert a.classes[0][0] == b.classes[0][0]
        assert dict(a.classes) == pytest.approx(dict(b.classes), abs=1e-4)


def test_images_are_classified_as_in_evaluation_by_run_file_and_folder(
    digits_run, pictures, capsys
):
    found, errors = predict.predict_files(digits_run, pictures, top=10)
    assert not errors
    known = trained_run.evaluate(digits_run)["test_accuracy"]
    assert 0.3 < known < 1  # it could be wrong, and right by chance is 0.1
    assert accuracy(found, lambda path: path.name[0]) == known
    assert all(sum(dict(p.classes).values()) == pytest.approx(1) for p in found)
    best = predict.predict_files(digits_run, pictures, best=True).predictions
    known_best = trained_run.evaluate(digits_run, best=True)["test_accuracy"]
    assert accuracy(best, lambda path: path.name[0]) == known_best != known

    capsys.readouterr()
    assert main(["export", str(digits_run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    file = digits_run / "model.onnx"
    assert lines[0] == f"{file}: {file.stat().st_size / 1e6:.2f} MB, checked with onnxruntime"
    learned = [
        " × ".join(f"{s:.2f}" for s in row.strides)
        for row in trained_run.learned_strides(digits_run).rows
    ]
    assert lines[1] == f"strides {', '.join(learned)}"
    props = {p.key: json.loads(p.value) for p in onnx.load(file).metadata_props}
    facts = Run.open(digits_run).data
    assert props["classes"] == list("0123456789")
    assert props["preprocessing"] == {
        "kind": "images",
        "size": [1, 32, 32],
        "mean": facts["mean"],
        "std": facts["std"],
        "resize": None,
    }
    assert main(["export", str(digits_run), "-o", "shared"]) == 0
    assert "shared: 0." in capsys.readouterr().out
    assert json.loads(Path("shared/config.json").read_text())["metadata"] == props
    for model in (file, "shared"):
        same(predict.predict_files(model, pictures, top=10).predictions, found)


def recordings(packed, folder):
    """The test files of a pack as files, and their rows."""
    import pyarrow.parquet

    folder.mkdir()
    table = pyarrow.parquet.read_table(next(Path(packed).glob("test*.parquet")))
    rows = {}
    for row in table.to_pylist():
        path = folder / row["audio"]["path"]
        path.write_bytes(row["audio"]["bytes"])
        rows[path] = row
    return rows


def test_recordings_are_classified_as_in_evaluation(tmp_path, capsys):
    packed = audio_pack(tmp_path / "pack")
    assert main(["train", "audio", "--data.path", packed, *TINY_AUDIO, "--name", "a"]) == 0
    files = recordings(packed, tmp_path / "files")
    long = tmp_path / "files" / "long.wav"  # more windows than a batch
    long.write_bytes(sound(200.5))
    found, errors = predict.predict_files("runs/a", [*files, long], top=2)
    assert not errors
    known = trained_run.evaluate("runs/a")["test_accuracy"]
    assert accuracy(found[:-1], lambda path: str(files[path]["label"])) == known
    assert main(["export", "runs/a", "-o", "shared"]) == 0
    same(predict.predict_files("shared", [*files, long], top=2).predictions, found)
    with pytest.raises(ValueError, match=r"--resize is for images, and shared is for audio"):
        predict.predict_files("shared", [*files], resize=True)
    capsys.readouterr()
    assert main(["predict", "shared", str(long), "shared/config.json"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["file", "class", "probability"]
    assert err == "diffstride: shared/config.json can't be read as audio (Format not recognised.)\n"
    metadata = json.loads(Path("shared/config.json").read_text())["metadata"]
    metadata["preprocessing"]["spectrogram"]["hop"] = 80
    models.save_pretrained(models.from_pretrained("shared"), "shared", metadata)
    with pytest.raises(ValueError, match=r"was trained on spectrograms with .*'hop': 80"):
        predict.predict_files("shared", [*files])


def test_tasks_keep_their_scores_on_the_way_through_onnx(tmp_path, capsys):
    packed = audio_pack(tmp_path / "pack", pitch=3, family=3, alone=2)
    # In another order than that of the alphabet, two of them with as many classes.
    tasks = [f"{name}={packed}:{name}" for name in ("pitch", "family", "alone")]
    words = [word for task in tasks for word in ("--data.task", task)]
    assert main(["train", "audio_multitask", *words, *TINY_AUDIO, "--name", "a"]) == 0
    files = recordings(packed, tmp_path / "files")
    found, errors = predict.predict_files("runs/a", [*files], top=3)
    assert not errors
    assert [p.task for p in found[:3]] == ["pitch", "family", "alone"]
    known = trained_run.evaluate("runs/a")
    for name in ("pitch", "family", "alone"):
        own = [p for p in found if p.task == name]
        labels = accuracy(own, lambda path, name=name: str(files[path][name]))
        assert labels == known[f"test_accuracy_{name}"]
    assert main(["export", "runs/a", "-o", "out/tasks.onnx"]) == 0
    same(predict.predict_files("out/tasks.onnx", [*files], top=3).predictions, found)
    first, second = (dict(p.classes) for p in found[:2])
    assert first != pytest.approx(second, abs=1e-3)  # the other order would have been noticed
    capsys.readouterr()
    assert main(["predict", "out/tasks.onnx", *map(str, files), "--top", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 * len(files)
    assert lines[0].split()[:4] == ["file", "task", "class", "probability"]
    assert lines[0].endswith("class 3  probability")
    assert (
        len({line.index(p.task, len(p.file)) for line, p in zip(lines[1:], found, strict=True)})
        == 1
    )


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "png")
    return file.getvalue()


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "crop"), [(None, False), (24, False), (24, True)])
def test_images_are_prepared_as_for_evaluation(side, crop, channels, tmp_path):
    shape = (24, 24) if side is None else (31, 47)
    path = tmp_path / "a.png"
    path.write_bytes(png(noise(*shape, channels)))
    files = FilePaths("test", torch.zeros(1), (path,))
    split = EncodedImages(files, 24) if crop else read_images(files, side)
    told = DataConfig(path="somewhere", image_size=side, inception_crop=crop)
    facts = {"size": split.size, "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    described = json.loads(json.dumps(preparation.describe(told, facts)))
    read = preparation.read(described, "here")
    found = read.pixels("a.png", path.read_bytes(), resize=False)
    assert torch.equal(found, split.take(torch.tensor([0]))[0])


def test_images_of_another_size_or_colour(digits_run, pictures, tmp_path, capsys):
    grey = Image.open(pictures[0])
    grey.convert("RGB").save("colour.png")
    grey.resize((64, 64), Image.Resampling.NEAREST).save("large.png")
    grey.crop((0, 0, 30, 28)).save("small.png")
    (plain, colour), errors = predict.predict_files(digits_run, [pictures[0], "colour.png"], top=3)
    assert not errors
    assert plain.classes == colour.classes
    capsys.readouterr()
    assert main(["predict", str(digits_run), "colour.png", "large.png", "small.png"]) == 1
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["file", "colour.png"]
    assert err.splitlines() == [
        "diffstride: large.png is 64×64, and the network was trained on 32×32: --resize scales "
        "it, and takes its middle",
        "diffstride: small.png is 28×30, and the network was trained on 32×32: --resize scales "
        "it, and takes its middle",
    ]
    assert main(["predict", str(digits_run), "large.png", "small.png", "--resize"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_bad_files_among_good_ones_do_not_stop_them(tmp_path, capsys):
    tiny_onnx("tiny.onnx")
    Path("dark.png").write_bytes(png(np.zeros((2, 3), np.uint8)))
    Path("bright.png").write_bytes(png(np.full((2, 3), 255, np.uint8)))
    Path("text.png").write_text("no image")
    Path("empty.png").touch()
    Path("cut.png").write_bytes(png(noise(2, 3))[:45])
    Path("folder").mkdir()
    files = "dark.png missing.png folder text.png empty.png cut.png bright.png".split()
    assert main(["predict", "tiny.onnx", *files, "--top", "5"]) == 1
    out, err = capsys.readouterr()
    certain = 1 / (1 + np.exp(-6))
    assert out.splitlines() == [
        "file        class  probability  class 2  probability",
        f"dark.png    cat    {certain:.4f}       dog      {1 - certain:.4f}",
        f"bright.png  dog    {certain:.4f}       cat      {1 - certain:.4f}",
    ]
    folder, missing, text, empty, cut = err.splitlines()
    assert missing == "diffstride: missing.png does not exist"
    assert folder.startswith("diffstride: folder is a folder without images: no file ends with ")
    assert text == "diffstride: text.png can't be read as an image (its format is not known)"
    assert "empty.png can't be read as an image (there is no such file, or it is empty)" in empty
    assert "cut.png can't be read as an image (" in cut
    assert main(["predict", "tiny.onnx", "missing.png"]) == 1
    assert capsys.readouterr().out == ""


def test_a_thousand_files_are_taken_in_batches(monkeypatch):
    tiny_onnx("tiny.onnx")
    generator = np.random.default_rng(0)
    levels = generator.integers(0, 256, 1000).tolist()
    for i, level in enumerate(levels):
        Path(f"{i}.png").write_bytes(png(np.full((2, 3), level, np.uint8)))
    sizes = []
    run = onnxruntime.InferenceSession.run

    def counted(session, outputs, inputs):
        sizes.append(len(inputs["input"]))
        return run(session, outputs, inputs)

    monkeypatch.setattr(onnxruntime.InferenceSession, "run", counted)
    found, errors = predict.predict_files("tiny.onnx", [f"{i}.png" for i in range(1000)])
    assert not errors
    assert sizes == [256, 256, 256, 232]
    assert [p.classes[0][0] for p in found] == ["dog" if x > 127 else "cat" for x in levels]


def saved(path, **metadata):
    models.save_pretrained(models.create("resnet18", num_classes=2, width=0.02), path, metadata)
    return path


def unreadable(path):
    tiny_onnx(path)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    return path


def without_checkpoint(folder):
    run = Run.of(RECIPES["digits"].config, "digits")
    run.create(RECIPES["digits"].config, {}, {})
    facts = {"size": [1, 32, 32], "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    (run.folder / "data.json").write_text(json.dumps(facts))
    shutil.move(run.folder, folder)
    return folder


def made(call, path):
    call(path)
    return path


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: "nowhere", [], "nowhere does not exist: it must be the folder of a run, an exp"),
        (
            lambda: made(lambda p: Path(p).mkdir(), "a"),
            [],
            "a has neither config.yaml nor config.j",
        ),
        (lambda: made(lambda p: Path(p).touch(), "a.pt"), [], "a.pt: unknown format .pt: it must"),
        (lambda: unreadable("a.onnx"), [], "a.onnx can't be read as ONNX: "),
        (lambda: made(lambda p: Path(p).touch(), "a.onnx"), [], "a.onnx can't be read as ONNX"),
        (lambda: tiny_onnx("a.onnx", classes=None), [], "a.onnx does not say its classes and how"),
        (lambda: tiny_onnx("a.onnx", classes="cat"), [], "a.onnx does not say its classes"),
        (lambda: tiny_onnx("a.onnx", preprocessing=[1]), [], "does not say its classes and how"),
        (
            lambda: tiny_onnx("a.onnx", preprocessing={"kind": 1}),
            [],
            "use what `diffstride export`",
        ),
        (
            lambda: tiny_onnx("a.onnx", classes=["a"]),
            [],
            "outputs for [2] classes, and names for [1]",
        ),
        (lambda: tiny_onnx("a.onnx"), ["--best"], "--best is for the folder of a run, and a.onnx"),
        (lambda: tiny_onnx("a.onnx"), ["--top", "0"], "--top must be at least 1, got 0"),
        (lambda: saved("a"), [], "a does not say its classes and how files are prepared for it"),
        (lambda: without_checkpoint("a"), [], "a has no checkpoint yet: continue it"),
    ],
    ids=range(14),
)
def test_models_that_can_not_be_used_are_refused_with_a_reason(make, options, message, capsys):
    Path("a.png").write_bytes(png(noise(2, 3)))
    assert main(["predict", make(), "a.png", *options]) == 1
    out, err = capsys.readouterr()
    assert message in err
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere has no run"),
        (["run", "-o", "a.pt"], "a.pt: unknown format .pt: .onnx or a folder"),
        (["run", "-o", "folder.onnx"], "folder.onnx is a folder: give the name of a file in it"),
        (["run", "-o", "file"], "file is a file already: a name without .onnx is that of a folder"),
        (["run", "-o", "a"], "run has no checkpoint yet"),
    ],
)
def test_what_can_not_be_exported_is_said_at_once(words, message, capsys):
    without_checkpoint("run")
    Path("folder.onnx").mkdir()
    Path("file").touch()
    before = sorted(Path().rglob("*"))
    assert main(["export", *words]) == 1
    assert message in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(("package", "extra"), [("onnxruntime", "export"), ("soundfile", "audio")])
def test_what_is_missing_is_named(package, extra, monkeypatch, capsys):
    original = builtins.__import__

    def without(name, *args, **options):
        if name == package:
            raise ModuleNotFoundError("no", name=name)
        return original(name, *args, **options)

    told = {"kind": "audio", "size": [1, 100, 64], "mean": [0.0], "std": [1.0], "seconds": 1}
    told["spectrogram"] = preparation.constants()
    tiny_onnx("a.onnx", preprocessing=told)
    Path("a.wav").write_bytes(b"sound")
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["predict", "a.onnx", "a.wav"]) == 1
    assert f"needs {package}: pip install 'diffstride[{extra}]'" in capsys.readouterr().err


def test_a_file_is_used_without_what_training_needs():
    tiny_onnx("a.onnx")
    Path("a.png").write_bytes(png(noise(2, 3)))
    code = (
        "import sys; from diffstride.lab.cli import main; main(['predict', 'a.onnx', 'a.png']);"
        "print(sorted({'lightning', 'datasets', 'soundfile', 'sklearn'} & sys.modules.keys()))"
    )
    ((_, _, (shown,)),) = predict.predict_files("a.onnx", ["a.png"]).predictions
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == [f"a.png  {shown[0]}    {shown[1]:.4f}", "[]"]
