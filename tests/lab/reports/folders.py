"""Folders of runs and sweeps, written as training writes them, with numbers made up."""

import base64
import io
import json
import math
from dataclasses import replace

from PIL import Image

from diffstride.lab.runs.config import Config
from diffstride.lab.runs.data_config import DataConfig
from diffstride.lab.runs.search_folder import (
    STAGES,
    Network,
    Plan,
    Result,
    Search,
    Settings,
    Site,
    write_document,
)


def write_run(
    folder,
    *,
    downsampling="diffstride",
    strides=(2.0, 3.0),
    ends=(1.5, 4.0),
    size=(32, 32),
    epochs=3,
    done=None,
    smoothness=2.0,
    seed=0,
    accuracy=0.8,
    facts=None,
    tasks=(),
    examples=None,
    path="data/cats",
    trade_offs=None,
    noise=None,
    restored=None,
):
    """A run whose strides go from ``strides`` to ``ends``, if it learns any.

    One that takes noise away has a PSNR of 30 times the accuracy, and began at 15 dB.

    The trade-offs are what the last cells of strides.csv hold after each epoch, by layer and axis;
    without any, the file has no columns for them, as those of older runs.
    """
    folder.mkdir(parents=True)
    done = epochs if done is None else done
    config = {
        "model": {
            "name": "resnet18",
            "downsampling": downsampling,
            "strides": list(strides),
            "smoothness": smoothness,
        },
        "data": {"path": path, "noise": noise},
        "trainer": {"epochs": epochs},
        "seed": seed,
        "name": folder.name,
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # which is YAML too
    found = {"size": [1, *size], "classes": ["a", "b"], "train": 90, "test": 10}
    (folder / "data.json").write_text(json.dumps(found | (facts or {})))
    (folder / "environment.json").write_text(json.dumps({"torch": "2.13.0", "seed": seed}))
    name, factor = ("accuracy", 1) if noise is None else ("psnr", 30)
    metrics = [f"epoch,step,train_loss,train_{name},test_loss,test_{name},stride_penalty,mmacs"]
    metrics[0] += "".join(f",test_accuracy_{task}" for task in tasks)
    metrics[0] += ",test_noisy_psnr" * (noise is not None)
    times = ["epoch,step,seconds"]
    table = ["epoch,step,layer,axis,stride,input_size,output_size"]
    if trade_offs is not None:
        table[0] += ",cost_saved,loss_gradient,loss_gradient_error"
    for epoch in range(done + 1):
        part, cost, area, sizes = epoch / max(1, epochs), 0.0, 1.0, list(size)
        for i, (start, end) in enumerate(zip(strides, ends, strict=True)):
            for axis in range(len(size)):
                stride = start + (end - start) * part + 0.05 * axis * (epoch > 0)
                kept = max(1, min(sizes[axis], math.floor(sizes[axis] / stride + 2 * smoothness)))
                row = f"{epoch},{10 * epoch},stages.{i}.down,{axis},{stride},{sizes[axis]},{kept}"
                if trade_offs is not None:
                    row += f",{trade_offs[i, axis]}" if epoch else ",0.5,,"
                table.append(row)
                sizes[axis], area = kept, area / stride
            cost += area
        if epoch:
            right = factor * accuracy * (1 - 0.5**epoch) / (1 - 0.5**epochs)
            cost = cost if downsampling == "diffstride" else 0.0
            line = f"{epoch},{10 * epoch},{0.9**epoch},{right},{0.95**epoch},{right},{cost}"
            others = f",{right / 2}" * len(tasks) + ",15" * (noise is not None)
            metrics.append(f"{line},{50 * (1 + cost)}{others}")
            times.append(f"{epoch},{10 * epoch},{20 + epoch}")
    if done:
        (folder / "metrics.csv").write_text("\n".join(metrics) + "\n")
        (folder / "times.csv").write_text("\n".join(times) + "\n")
    learns = downsampling == "diffstride"
    (folder / "strides.csv").write_text("\n".join(table) + "\n" if learns else "")
    if restored is not None:
        (folder / "restored.json").write_text(json.dumps({"epoch": epochs, "images": restored}))
    if examples is not None:
        (folder / "examples.json").write_text(json.dumps({"images": examples}))
    return folder


def example(label="7", height=32, width=32):
    """A bright disc with stripes."""
    pixels = [
        [
            255 if math.hypot(x - width / 2, y - height / 2) < height / 4 else 60 * (x % 4 == 0)
            for x in range(width)
        ]
        for y in range(height)
    ]
    return {"label": label, "pixels": pixels}


def restored_example(label="7", height=5, width=8, colours=False):
    """A picture of one grey in three states."""

    def png(grey):
        file = io.BytesIO()
        picture = Image.new("L", (width, height), grey)
        (picture.convert("RGB") if colours else picture).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()

    states = {"clean": png(100), "noisy": png(150), "restored": png(101)}
    return {"label": label, "noisy_psnr": 14.151, "psnr": 48.13, **states}


def signal(label="bee", samples=2000):
    """A wave that becomes faster, and louder up to the middle."""
    turns = [0.4 * math.pi * n * n / samples for n in range(samples)]
    louder = [math.sin(math.pi * (n + 0.5) / samples) for n in range(samples)]
    values = [round(a * math.cos(t), 4) for a, t in zip(louder, turns, strict=True)]
    return {"label": label, "samples": values}


SOUND = {"axes": ["time", "frequency"], "sampling_rate": [100, 1], "size": [1, 40, 20]}
"""The facts of spectrograms, as older runs have them."""


def write_signals(folder, *, rate=8000, length=4000, sites=5, **settings):
    """A run on signals, with a second axis nowhere; without a rate, samples are the unit."""
    facts = {"axes": ["time"], "sampling_rate": [rate or 1], "size": [2, length]}
    facts["units"] = ["Hz" if rate else "cycles per sample"]
    strides = {"strides": [2.0] * sites, "ends": [2.0 + 0.5 * i for i in range(sites)]}
    settings = {"examples": [signal(), signal("fly", 1500)], **strides, **settings}
    return write_run(folder, size=(length,), facts=facts, **settings)


def write_sweep(folder, rows, columns, seeds, *, title="Cats, ResNet-18", paper=None, **settings):
    """A sweep whose accuracies are 0.5, then 0.02 more a row, 0.1 a column, 0.01 a seed."""
    folder.mkdir(parents=True)
    entries = []
    for r, row in enumerate(rows):
        for c, (column, downsampling) in enumerate(columns.items()):
            for seed in range(seeds):
                name = f"{column}-{'-'.join(f'{s:g}' for s in row)}-s{seed}"
                told = {"name": name, "row": label(row), "column": column, "seed": seed}
                entries.append(told)
                write_run(
                    folder / name,
                    downsampling=downsampling,
                    strides=row,
                    ends=[2.0 + 0.1 * seed + i for i in range(len(row))],
                    seed=seed,
                    accuracy=0.5 + 0.02 * r + 0.1 * c + 0.01 * seed,
                    **settings,
                )
    plan = {
        "table": "cats",
        "title": title,
        "scale": "small",
        "seeds": list(range(seeds)),
        "rows": [label(row) for row in rows],
        "columns": list(columns),
        "column_titles": {column: f"The {column}" for column in columns},
        "runs": entries,
        "paper": paper or {},
    }
    (folder / "sweep.json").write_text(json.dumps(plan))
    return folder


def label(row):
    return f"({', '.join(f'{stride:g}' for stride in row)})"


def write_search(
    folder, stages=STAGES, *, code="models.create('resnet18')", noise=None, **settings
):
    """A search that has come to the end of some of its stages."""
    search = Search(folder)
    folder.mkdir(parents=True)
    config = replace(Config(), data=DataConfig(noise=noise))
    told = ("cats", False, "macs", 52.0, (2.0, 2.0, 3.0, 3.0), 3, 1, config)
    write_document(search.search_file, Settings(*told))
    inside = {"learn": ("001", "002", "003"), "compare": ("begin", "found")}
    for i, stage in enumerate(stages):
        for name in inside.get(stage, (".",)):
            given = {"downsampling": "spectral", "accuracy": 0.78 + 0.02 * i, "noise": noise}
            given |= settings
            write_run(folder / stage / name, **given)
    if len(stages) > 2:
        networks = []
        for k, strides in enumerate([(2.0, 2.0, 3.0, 3.0), (1.5, 1.55, 4.0, 4.05)]):
            pairs = (strides[:2], strides[2:])
            sites = tuple(
                Site(f"stages.{j}.down", pair, (32, 32), (16, 15 + j - k), 0.5)
                for j, pair in enumerate(pairs)
            )
            networks.append(Network(strides, 52_000_000, None, sites))
        write_document(search.plan_file, Plan(networks[1].strides, (0.7, 0.6), *networks, code))
    if len(stages) == len(STAGES):
        values = (0.82, 0.84, 0.02, -0.01, 0.05)
        if noise is not None:
            values = (30 * value for value in values)
        result = Result(*values, 1000, (40.0, 20.0, 50.0, 55.5))
        write_document(search.result_file, result)
    return folder
