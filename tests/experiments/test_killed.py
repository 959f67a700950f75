"""A run that is killed, at any moment and again and again, ends as if it had not been."""

import multiprocessing
import os
import random
import sys
import time

import torch

OPTIONS = "--model.width 0.0625 --data.limit 512 --data.batch_size 32 --trainer.epochs 6".split()
KILLS = 10  # at least, and at most three times as many until they hit different epochs


def command(folder, words):
    """What a process does: the command line, in a folder, on one core."""
    from diffstride.cli import main

    os.chdir(folder)
    torch.set_num_threads(1)
    with (folder / f"{words[0]}.txt").open("a") as sys.stdout:
        sys.exit(main(words))


def start(folder, *words):
    # Processes of their own that a signal can kill, forked from one that has imported everything.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["diffstride.experiments.train", "sklearn.datasets", __name__])
    process = context.Process(target=command, args=(folder, list(words)))
    process.start()
    return process


def last_epoch(run):
    return max((path.name for path in run.glob("checkpoints/epoch-*.ckpt")), default="none")


def test_a_run_killed_at_ten_moments_ends_with_the_same_numbers(tmp_path):
    whole, broken = tmp_path / "runs" / "whole", tmp_path / "runs" / "broken"
    durations = []
    for name in ("first", "whole"):  # the first has to wait for the imports
        began = time.monotonic()
        process = start(tmp_path, "train", "digits", *OPTIONS, "--name", name)
        process.join(300)
        durations.append(time.monotonic() - began)
        assert process.exitcode == 0

    moments = random.Random(0)
    words = ["train", "digits", *OPTIONS, "--name", "broken"]
    reached = []
    while len(reached) < KILLS or (len(set(reached)) < 3 and len(reached) < 3 * KILLS):
        process = start(tmp_path, *words)
        # A sixth of the way on average: at times while it only starts, at times epochs later.
        process.join(moments.uniform(0, durations[1] / 3))
        process.kill()
        process.join()
        reached.append(last_epoch(broken))
        if (broken / "config.yaml").exists():
            words = ["resume", "runs/broken"]
    process = start(tmp_path, *words)
    process.join(300)
    assert process.exitcode == 0
    assert "test accuracy" in (tmp_path / "resume.txt").read_text()
    assert len(set(reached)) > 2, f"kills came at the same moments: {reached}"

    for name in ("metrics.csv", "strides.csv"):
        assert (broken / name).read_text() == (whole / name).read_text()
    states = [
        torch.load(run / "checkpoints" / "epoch-00006.ckpt", weights_only=True)["state_dict"]
        for run in (whole, broken)
    ]
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
