"""Where the runs of a sweep happen: each is a process, started here or by Ray.

An engine takes jobs and yields their names as they end, each with None or what went wrong, and
None alone now and then so that whoever looks on can be told how far it is.
"""

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any, NamedTuple

from diffstride.lab.runs import lock
from diffstride.lab.runs.documents import read_rows
from diffstride.lab.runs.run_folder import Run

Event = tuple[str, str | None] | None

ATTEMPTS = 2
DEATHS = 3  # of Ray's workers, before a run counts as failed
TICK = 0.5  # seconds
MERCY = 10  # seconds that a process has to end before it is killed
STOPPED = "stopped"
COMMAND = (sys.executable, "-m", "diffstride")


class Job(NamedTuple):
    """A run that is not finished, in files that every process can see."""

    name: str
    folder: str
    config: str
    """A file, for a run that has not begun."""
    log: str
    epochs: int
    cwd: str
    """What paths in the config are relative to."""


def epochs_done(folder: Path) -> int:
    """How many epochs of a run are written down; 0 if there is no run."""
    try:
        return int(read_rows(folder / "metrics.csv", "epoch")[-1]["epoch"])
    except (OSError, LookupError, ValueError):
        return 0


def finished(folder: Path, epochs: int) -> bool:
    """Whether a run has its last epoch, and its checkpoint unless all were thrown away.

    Metrics are written just before: who was killed between the two has an epoch to repeat.
    """
    files = Run(folder).checkpoint_files()
    return epochs_done(folder) >= epochs and (not files or files[0].stem >= f"epoch-{epochs:05}")


def carry_out(
    job: Job,
    threads: int,
    variables: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> str | None:
    """Train a run to its end, from wherever it is, in a process of its own.

    One that fails is tried again once. Whoever comes while another process still trains the run,
    started by a sweep before for one, waits for it.

    Returns:
        None, or the last line of what went wrong.
    """
    stop = stop or threading.Event()
    error = None
    with Path(job.log).open("a") as log:
        for _ in range(ATTEMPTS):
            while lock.holder(Path(job.folder)) is not None:
                if stop.wait(TICK):
                    return STOPPED
            if finished(Path(job.folder), job.epochs):
                return None
            code = _process(_words(job), job, log, threads, variables or {}, stop)
            if stop.is_set():
                return STOPPED
            if code == 0:
                return None
            error = _last_line(Path(job.log)) if code > 0 else f"killed by signal {-code}"
    return error


def _words(job: Job) -> list[str]:
    """The command that brings a run on, from wherever it is."""
    if (Path(job.folder) / "config.yaml").exists():
        return ["resume", job.folder]
    return ["train", job.config, "--name", job.name, "--out", str(Path(job.folder).parent)]


def _process(
    words: list[str],
    job: Job,
    log: IO[str],
    threads: int,
    variables: Mapping[str, str],
    stop: threading.Event,
) -> int:
    command = [*COMMAND, *words]
    moment = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"# {moment}, from process {os.getpid()}: {shlex.join(command)}", file=log, flush=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=job.cwd if Path(job.cwd).is_dir() else None,
        env={**os.environ, **variables, "OMP_NUM_THREADS": str(threads), "TERM": "dumb"},
    )
    try:
        while True:
            try:
                return process.wait(TICK)
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    return -signal.SIGTERM
    finally:  # also of whoever is interrupted here
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(MERCY)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    # After the message of an error of an unexpected kind comes how to see more of it.
    if len(lines) > 1 and lines[-1].endswith("--debug shows where)"):
        lines.pop()
    return lines[-1] if lines else "it said nothing"


def local(
    jobs: Sequence[Job], at_once: int, threads: int, devices: Sequence[str] = ()
) -> Generator[Event, None, None]:
    """Run jobs on this machine, so many at once; with GPUs, each on one of them."""
    stop = threading.Event()
    slots: queue.SimpleQueue[int] = queue.SimpleQueue()
    for slot in range(at_once):
        slots.put(slot)

    def work(job: Job) -> str | None:
        slot = slots.get()
        own = {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} if devices else {}
        try:
            return carry_out(job, threads, own, stop)
        except OSError as error:
            return str(error)
        finally:
            slots.put(slot)

    pool = ThreadPoolExecutor(at_once)
    futures = {pool.submit(work, job): job for job in jobs}
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, TICK, return_when=FIRST_COMPLETED)
            for future in done:
                yield futures[future].name, future.result()
            yield None
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def on_ray(
    jobs: Sequence[Job], threads: int, gpus: float | None, address: str | None
) -> Generator[Event, None, None]:
    """Run jobs on a Ray cluster, or on a Ray of this machine alone.

    A worker that dies is replaced: its run goes on from its last checkpoint.
    """
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as missing:
        message = f"--engine ray needs {missing.name}: pip install 'diffstride[sweep]'"
        raise ImportError(message) from missing

    ours = not ray.is_initialized()
    if ours:
        # The dashboard is the cluster's business.
        dashboard = None if address else False
        ray.init(address=address, log_to_driver=False, include_dashboard=dashboard)
    pending: list[Any] = []
    try:
        gpus = _share(ray, threads, gpus, address)
        task = ray.remote(carry_out).options(num_cpus=threads, num_gpus=gpus, max_retries=DEATHS)
        names = {task.remote(job, threads): job.name for job in jobs}
        pending = list(names)
        while pending:
            done, pending = ray.wait(pending, num_returns=1, timeout=TICK)
            for reference in done:
                try:
                    error = ray.get(reference)
                except RayError as problem:
                    error = str(problem).strip().splitlines()[-1]
                yield names[reference], error
            yield None
    finally:
        for reference in pending:
            ray.cancel(reference)  # interrupts it, so that it stops its process
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=MERCY)
        if ours:
            ray.shutdown()


def _share(ray: Any, cores: int, gpus: float | None, address: str | None) -> float:
    """What a run gets of a GPU: what was asked for, or one if there are any.

    Raises:
        ValueError: if a Ray of this machine alone can never give as much.
    """
    there = ray.cluster_resources()
    gpus = (1 if there.get("GPU") else 0) if gpus is None else gpus
    for kind, wanted in (("CPU", cores), ("GPU", gpus)):
        if wanted > there.get(kind, 0):
            told = f"a run wants {wanted:g} {kind}, and Ray has {there.get(kind, 0):g}"
            if not address:
                raise ValueError(f"{told}: choose smaller --cores or --gpus")
            print(f"{told} at the moment: runs wait until there are more", flush=True)
    return gpus
