"""How a command is stopped by Ctrl-C, or by SIGTERM as schedulers send it: with a sentence.

While libraries are loaded, it ends at once: they swallow exceptions. What trains asks for one, to
give back its lock and stop its processes. Imported first, this module imports next to nothing.
"""

import os
import signal
import sys

SIGNALS = (signal.SIGINT, signal.SIGTERM)
MERCY = 30  # seconds to end after an interruption; files are complete at any moment

_received: list[int] = []
_by_exception: list[bool] = []


def catch_signals() -> None:
    """From now on, a signal stops the command, unless whoever started it has it ignored."""

    def stop(number: int, frame: object) -> None:
        again = bool(_received)
        _received.append(number)
        if _by_exception and not again:
            if hasattr(signal, "setitimer"):  # not on Windows
                signal.signal(signal.SIGALRM, stop)
                signal.setitimer(signal.ITIMER_REAL, MERCY)
            raise KeyboardInterrupt
        os.write(2, _sentence(sys.argv[1:]).encode())
        os._exit(1)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def raise_from_now_on() -> None:
    """From now on, the first signal raises a KeyboardInterrupt: libraries are loaded."""
    _by_exception.append(True)


def ignore_signals() -> None:
    """From now on nothing is left to interrupt: all is written, and Python ends."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def received() -> bool:
    """Return whether a signal came; libraries may turn it into other errors."""
    return bool(_received)


def say(words: list[str]) -> int:
    """Say that a command was interrupted, and how to go on. Returns its exit code."""
    print(_sentence(words), end="", file=sys.stderr)
    return 1


def _sentence(words: list[str]) -> str:
    advice = ""
    if words[:1] in (["train"], ["resume"]):
        advice = ": diffstride resume RUN goes on from the last epoch"
    elif words[:1] == ["search"]:
        advice = ": the same command goes on from the last epoch"
    return f"\ninterrupted{advice}\n"
