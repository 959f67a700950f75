"""Where the runs of a sweep happen: each is a process, started on this machine or by Ray.

An engine takes jobs and yields an event when one ends: its name, and None or what went wrong.
In between it yields None now and then, so that the caller can look at the folders of runs.
"""

import os
import queue
import shlex
import signal
import subprocess
import time
from argparse import Namespace
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import IO, Any, NamedTuple

from diffstride.lab.runs import lock
from diffstride.lab.runs.run_folder import Run
from diffstride.lab.sweeps import starting
from diffstride.lab.sweeps.progress import log_file

Ended = tuple[str, str | None] | None

ATTEMPTS = 2
DEATHS = 3  # of Ray's workers before a run fails; until then, another worker goes on with it
TICK = 0.5  # seconds
MERCY = 10  # seconds that a process has to end before it is killed


ENGINE = "what starts the runs: this machine, or Ray; local unless given"
GPUS = "how much of a GPU each run gets; 1 unless given, 0.25 for four on one"
ARGUMENTS: dict[str, dict[str, Any]] = {
    "--jobs": dict(type=int, metavar="N", help="runs at a time; one a core, or one a GPU"),
    "--gpus": dict(type=float, metavar="PART", help=GPUS),
    "--engine": dict(choices=("local", "ray"), default="local", help=ENGINE),
    "--address": dict(help="of a Ray cluster; without it, Ray is started on this machine"),
    "--cores": dict(type=int, metavar="N", help="cores of a Ray cluster for each run; 1"),
}
"""Of a command: the options by which it is said."""


class Options(NamedTuple):
    """The engine of a sweep, and what each run gets of it."""

    engine: str = "local"
    jobs: int | None = None
    gpus: float | None = None
    address: str | None = None
    cores: int | None = None

    @classmethod
    def of(cls, args: Namespace) -> "Options":
        """Return what a command was told by ARGUMENTS."""
        return cls(*(getattr(args, name) for name in cls._fields))

    def check(self) -> None:
        """Raise a ValueError unless every number makes sense; the message names the option."""
        for name, least in (("jobs", 1), ("cores", 1), ("gpus", 0)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"--{name} must be at least {least}, got {value}")
        for name, engine in (("address", "ray"), ("cores", "ray"), ("jobs", "local")):
            if engine != self.engine and getattr(self, name) is not None:
                raise ValueError(f"--{name} is for --engine {engine}")
        if self.engine == "local" and (self.gpus or 0) > 1:
            raise ValueError(f"--gpus must be at most 1 with --engine local, got {self.gpus:g}")


class Job(NamedTuple):
    """A run that is not finished: how its process is started, started again, and judged.

    All paths are absolute, and every process can see them. The settings of a run that has not begun
    are in a YAML file beside its log.
    """

    folder: Path
    """That of the run."""
    epochs: int
    cwd: Path
    """The folder that paths in the config are relative to."""

    def carry_out(
        self,
        variables: Mapping[str, str],
        stop: Event | None = None,
        start: Callable[..., starting.Started] = starting.by_itself,
    ) -> str | None:
        """Train the run from wherever it is to its end, and return None or the reason of failure.

        A run that fails is tried again once. While another process trains it, one that an earlier
        sweep started for example, this one waits. The ``variables`` are added to the environment
        of its process, which ``start`` starts, and which ends when ``stop`` is set.
        """
        stop, error = stop or Event(), None
        with log_file(self.folder).open("a") as log:
            for _ in range(ATTEMPTS):
                while lock.holder(self.folder) is not None:
                    if stop.wait(TICK):
                        return "stopped"
                if Run(self.folder).is_finished(self.epochs):
                    return None
                code = self._process(log, variables, stop, start)
                if stop.is_set() or code == 0:
                    return "stopped" if stop.is_set() else None
                error = last_line(self.folder) if code > 0 else f"killed by signal {-code}"
        return error

    def _process(
        self,
        log: IO[str],
        variables: Mapping[str, str],
        stop: Event,
        start: Callable[..., starting.Started],
    ) -> int:
        """Start a process that begins or resumes the run, and return its exit code."""
        name, out = self.folder.name, self.folder.parent
        settings = log_file(self.folder).with_suffix(".yaml")
        words = ["train", str(settings), "--name", name, "--out", str(out)]
        if (self.folder / "config.yaml").exists():
            words = ["resume", str(self.folder)]
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        command = f"diffstride {shlex.join(words)}"
        print(f"# {now}, from process {os.getpid()}: {command}", file=log, flush=True)
        cwd = self.cwd if self.cwd.is_dir() else Path.cwd()
        process = start(words, log_file(self.folder), cwd, {"TERM": "dumb", **variables})
        try:
            while not stop.is_set():
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(TICK)
            return -signal.SIGTERM
        finally:  # also after an interruption here; a process that has ended gets no signal
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(MERCY)
            process.kill()
            process.wait()


def last_line(folder: Path) -> str:
    """Return the last line that the process of a run has printed."""
    log = log_file(folder)
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [line for line in map(str.strip, text.splitlines()) if line and line[0] != "#"]
    # After the message of an error of an unexpected kind comes how to see more of it.
    if len(lines) > 1 and lines[-1].endswith("--debug shows where)"):
        lines.pop()
    return lines[-1] if lines else "it said nothing"


def usable_cores() -> int:
    """Return how many cores this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")  # on Linux
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def on_this_machine(jobs: Sequence[Job], options: Options) -> Generator[Ended, None, None]:
    """Carry out jobs on this machine, several at once; with GPUs, each on one of them.

    The number of threads of a run does not depend on the number of runs left: a sweep that goes on
    after an interruption makes the same numbers.
    """
    import torch

    cores = usable_cores()
    gpus = 0 if options.gpus == 0 else torch.cuda.device_count()
    devices = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
    # Small networks use several cores badly: one for each run, unless there are GPUs to feed.
    at_once = options.jobs or max(1, int(gpus / (options.gpus or 1)) if gpus else cores)
    stop = Event()
    slots: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for i in range(at_once):
        device = {"CUDA_VISIBLE_DEVICES": devices.split(",")[i % gpus]} if gpus else {}
        slots.put({"OMP_NUM_THREADS": str(max(1, cores // at_once)), **device})

    def carry_out(job: Job) -> str | None:
        variables = slots.get()
        try:
            return job.carry_out(variables, stop, starting.HERE)
        finally:
            slots.put(variables)

    pool = ThreadPoolExecutor(at_once)
    try:
        yield from _events(jobs, [pool.submit(carry_out, job) for job in jobs], OSError)
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def on_ray(jobs: Sequence[Job], options: Options) -> Generator[Ended, None, None]:
    """Carry out jobs on a Ray cluster, or without an address on a Ray of this machine alone."""
    try:
        import ray
        from ray.exceptions import RayError
    except ImportError as missing:
        message = f"--engine ray needs {missing.name}: pip install 'diffstride[sweep]'"
        raise ImportError(message) from missing

    if ours := not ray.is_initialized():
        # The dashboard is the cluster's business.
        dashboard = None if options.address else False
        ray.init(address=options.address, log_to_driver=False, include_dashboard=dashboard)
    references: list[Any] = []
    try:
        cluster, cores = ray.cluster_resources(), options.cores or 1  # type: ignore[no-untyped-call]
        gpus = (1 if cluster.get("GPU") else 0) if options.gpus is None else options.gpus
        for kind, number in (("CPU", cores), ("GPU", gpus)):
            if number > cluster.get(kind, 0):
                message = f"a run wants {number:g} {kind}, and Ray has {cluster.get(kind, 0):g}"
                if not options.address:
                    raise ValueError(f"{message}: choose smaller --cores or --gpus")
                print(f"{message} at the moment: runs wait until there are more", flush=True)
        resources = {"num_cpus": cores, "num_gpus": gpus, "max_retries": DEATHS}
        task = ray.remote(Job.carry_out).options(**resources)
        variables = {"OMP_NUM_THREADS": str(cores)}
        references += [task.remote(job, variables) for job in jobs]
        yield from _events(jobs, [reference.future() for reference in references], RayError)
    finally:
        for reference in references:
            ray.cancel(reference)  # interrupts what still runs, so that it stops its process
        if references:
            ray.wait(references, num_returns=len(references), timeout=MERCY)
        if ours:
            ray.shutdown()


def _events(
    jobs: Sequence[Job], futures: Sequence[Future[str | None]], failure: type[Exception]
) -> Generator[Ended, None, None]:
    """Yield the name of each job as it ends, with None or the reason why it failed."""
    names = {future: job.folder.name for job, future in zip(jobs, futures, strict=True)}
    pending = set(futures)
    while pending:
        done, pending = wait(pending, TICK, return_when=FIRST_COMPLETED)
        for future in done:
            try:
                error = future.result()
            except failure as problem:
                error = (str(problem).strip() or repr(problem)).splitlines()[-1]
            yield names[future], error
        yield None
