"""The command ``diffstride``, which ``python -m diffstride`` is too."""

import os
import sys

from diffstride.lab import interruption


def run() -> int:
    """Run the command that the command line says. Returns its exit code."""
    try:
        interruption.catch_signals()
        from diffstride.lab.cli import main

        code = main()
    except KeyboardInterrupt:
        code = interruption.say(sys.argv[1:])
    finally:
        interruption.ignore_signals()
    if interruption.received():
        # `python -m` would end by SIGINT, not with a code, if Python was carrying out a text when
        # the signal came: it does so for every dataclass that it imports.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(run())
