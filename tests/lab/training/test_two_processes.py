"""Training shared between processes is the same training."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("two_processes.py")


def run(*command, folder, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_losses_are_those_of_one_process_and_strides_agree(tmp_path):
    for processes in (1, 2):
        run(SCRIPT, processes, tmp_path / f"of{processes}", folder=tmp_path)
    alone, first, second = (
        json.loads((tmp_path / name).read_text()) for name in ("of1.0", "of2.0", "of2.1")
    )
    assert len(alone["losses"]) == 20
    assert first["losses"] == pytest.approx(alone["losses"], abs=1e-4)
    assert first["strides"] == second["strides"]
    assert first["strides"] == pytest.approx(alone["strides"], abs=1e-4)
    assert max(abs(s - 2) for s in first["strides"]) > 0.003
    for name in ("loss_gradient", "loss_gradient_error"):
        assert first[name] == second[name] == pytest.approx(alone[name], rel=0.01), name
        assert min(map(abs, first[name])) > 1e-4


def test_sizes_may_differ_between_processes(tmp_path):
    run(SCRIPT, 2, tmp_path / "ragged", "ragged", folder=tmp_path)
    first, second = (json.loads((tmp_path / f"ragged.{i}").read_text()) for i in (0, 1))
    assert first["strides"] == second["strides"]


SHARED = (
    "-m diffstride train digits --model.width 0.0625 --data.limit 64 --data.batch_size 32 "
    "--trainer.epochs 1 --trainer.strategy ddp --trainer.accelerator cpu --name two"
).split()


def check_output(out, folder):
    assert out.count("test accuracy") == 1
    assert out.count("run runs/two, report") == 1
    assert len((folder / "runs/two/metrics.csv").read_text().splitlines()) == 2


def test_the_command_trains_in_two_processes(tmp_path):
    check_output(run(*SHARED, "--trainer.devices", "2", folder=tmp_path), tmp_path)


def test_torchrun_starts_the_command(tmp_path):
    launcher = "-m torch.distributed.run --nproc_per_node 2".split()
    check_output(run(*launcher, *SHARED, "--trainer.devices", "2", folder=tmp_path), tmp_path)


def test_slurm_starts_the_command(tmp_path):
    """Two tasks on two nodes, told so by the variables that srun sets."""
    job = {
        "SLURM_JOB_ID": "123456",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NODELIST": "127.0.0.1",
        "SLURM_LOCALID": "0",
    }
    words = [*SHARED, "--trainer.num_nodes", "2"]
    with ThreadPoolExecutor(2) as both:
        outs = both.map(
            lambda i: run(*words, folder=tmp_path, SLURM_PROCID=i, SLURM_NODEID=i, **job), "01"
        )
        check_output("".join(outs), tmp_path)


def test_recordings_are_shared_between_processes(tmp_path):
    """Seven recordings for testing, fewer than windows fill two batches; the means are of all."""
    for split, number in (("train", 8), ("test", 7)):
        for i in range(number):
            folder = tmp_path / "sounds" / split / ("low", "high")[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            hertz = 200 * (1 + i % 2) + 10 * i
            wave = 0.3 * np.sin(2 * np.pi * hertz * np.arange(24_000 - 2000 * i) / 16_000)
            soundfile.write(folder / f"{i}.wav", wave, 16_000)
    words = (
        "-m diffstride train audio --data.path sounds --data.cache cache --model.width 0.0625 "
        "--data.batch_size 4 --trainer.epochs 1 --trainer.steps 2 --trainer.accelerator cpu "
        "--name two --trainer.strategy ddp --trainer.devices 2"
    ).split()
    check_output(run(*words, folder=tmp_path), tmp_path)
    header, line = (tmp_path / "runs/two/metrics.csv").read_text().splitlines()
    found = dict(zip(header.split(","), line.split(","), strict=True))
    assert float(found["test_accuracy"]) * 7 == pytest.approx(
        round(float(found["test_accuracy"]) * 7)
    )
    out = run("-m", "diffstride", "evaluate", "runs/two", folder=tmp_path)
    assert f"test loss  {float(found['test_loss']):.4f}" in out
