"""One process at a time writes a folder: it holds ``.lock`` in it, which says whose it is.

Where the file system has ``flock``, the system drops the lock when its process ends, however it
ends. Where it has not, the file alone is the lock, and counts as long as its process is there.

The package ``filelock`` does less: it does not say who holds a lock or left it behind, knows one
of the errors of systems without ``flock``, and leaves its file in the folder.
"""

import contextlib
import errno
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from diffstride.files import remove_unfinished, write

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
PATIENCE = 0.5
"""Seconds to wait for a lock: others may hold it for a moment to see whether it is free."""
PAUSE = 0.02
UNWRITTEN = 10.0
"""Seconds after which a lock that says nothing is of a process that died while it made it."""
NO_FLOCK = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}


class Busy(ValueError):
    """Another process writes the folder; the message says which."""


class Holder(NamedTuple):
    """The process that holds a lock."""

    host: str
    pid: int
    start: str | None
    """When it began, as its system tells it: numbers of processes are used again."""
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (since {self.since}: {self.command})"

    def is_gone(self) -> bool:
        """Return whether the process has ended, as far as this machine can tell."""
        here = self.host == platform.node()
        return here and process_start(self.pid) not in (None, self.start)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or raise Busy; a folder made for nothing is removed again."""
    new_folders = [place for place in (folder, *folder.parents) if not place.exists()]
    end = time.monotonic() + PATIENCE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            before, release = _take(folder / NAME)
            break
        except FileNotFoundError:  # whoever made the folder has just removed it
            pass
        except Busy:
            if time.monotonic() > end:
                raise
        time.sleep(PAUSE)
    if before is not None:
        print(f"{folder} was locked by {before}, which is gone: going on", file=sys.stderr)
        remove_unfinished(folder, before.pid)
    try:
        yield
    finally:
        release()
        for place in new_folders:
            with contextlib.suppress(OSError):  # it is not empty
                place.rmdir()


def holder(folder: Path) -> str | None:
    """Return who holds the lock of a folder; None if it is free."""
    path = folder / NAME
    if not path.exists():
        return None
    if not _has_flock(folder):
        return None if _is_left(path) else str(_read(path) or "another process")
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return str(_read(path) or "another process")
    except FileNotFoundError:  # given back just now
        pass
    return None


def process_start(pid: int) -> str | None:
    """Return when a process began; empty if there is none, None where nobody can tell."""
    system = Path("/proc")
    if (system / "self" / "stat").exists():
        try:
            state, *fields = (system / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        boot = (system / "sys/kernel/random/boot_id").read_text().strip()
        return "" if state in "ZX" else f"{fields[18]} ticks after {boot}"
    try:
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _has_flock(folder: Path) -> bool:
    """Return whether the file system of a folder has locks that end with their process."""
    if fcntl is None:
        return False
    probe = folder / f"{NAME}.{os.getpid()}.part"
    try:
        with probe.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_FLOCK:
            raise
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _take(path: Path) -> tuple[Holder | None, Callable[[], None]]:
    """Take a lock. Returns whoever left it behind, and a function that gives it back."""
    if not _has_flock(path.parent):
        return _make(path), lambda: path.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("a+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(path) from None
        if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
            raise FileNotFoundError(path)  # the one before gave it back, and another made it anew
        before = _read(path)
        file.truncate(0)
        file.write(_this_process())
        file.flush()
        # Removed, then closed: whoever has opened the file by now sees that it is another.
        release = stack.pop_all()
        release.callback(path.unlink, missing_ok=True)
    return before, release.close


def _make(path: Path) -> Holder | None:
    """Make a lock that lasts as long as its file. Returns whoever left it behind.

    A lock that was left behind is taken over under a second lock, so that one of several processes
    that see it takes it, and the lock that this one makes is not taken for the old one.
    """
    try:
        with path.open("x") as file:
            file.write(_this_process())
        return None
    except FileExistsError:
        before = _read(path)
    if not _is_left(path):
        raise _busy(path)
    guard = path.with_name(f"{path.name}.next")
    _make(guard)
    try:
        if not _is_left(path) or _read(path) != before:
            raise _busy(path)
        write(path, _this_process())
    finally:
        guard.unlink()
    return before


def _is_left(path: Path) -> bool:
    """Return whether the process that made a lock is gone."""
    if (process := _read(path)) is not None:
        return process.is_gone()
    try:
        return time.time() - path.stat().st_mtime > UNWRITTEN
    except FileNotFoundError:
        return False


def _busy(path: Path) -> Busy:
    process, advice = _read(path), "wait until it has ended"
    if process is not None and process.host != platform.node():
        advice += f", or remove {path} if you know that it has"
    return Busy(f"{path.parent} is being written by {process or 'another process'}: {advice}")


def _this_process() -> str:
    """Return what a lock of this process says."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    pid, command = os.getpid(), shlex.join(sys.argv)
    holder = Holder(platform.node(), pid, process_start(pid), now, command)
    return json.dumps(holder._asdict()) + "\n"


def _read(path: Path) -> Holder | None:
    """Return who holds a lock; None if it does not say."""
    try:
        return Holder(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
