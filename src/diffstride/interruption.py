"""How a command is stopped by Ctrl-C, or by SIGTERM as schedulers send it: with a sentence.

It is imported first, and so imports next to nothing.
"""

import signal
import sys

_received: list[int] = []


def watch() -> None:
    """From now on, a signal interrupts the command, unless whoever started it has it ignored."""

    def interrupt(number: int, frame: object) -> None:
        _received.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def received() -> bool:
    """Whether a signal came; libraries that are half imported turn it into errors of their own."""
    return bool(_received)


def say(words: list[str]) -> int:
    """Say that a command was interrupted, and how to go on. Returns its exit code."""
    trained = words[:1] in (["train"], ["resume"])
    advice = ": diffstride resume RUN goes on from the last epoch" if trained else ""
    print(f"\ninterrupted{advice}", file=sys.stderr)
    return 1


def ignore() -> None:
    """From now on nothing is left to interrupt: all is written, and Python ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
