"""The command ``diffstride``, which ``python -m diffstride`` is too."""

import sys

from diffstride import interruption


def run() -> int:
    """Run the command that the command line says. Returns its exit code."""
    interruption.watch()
    try:
        from diffstride.cli import main

        return main()
    except KeyboardInterrupt:
        return interruption.say(sys.argv[1:])
    finally:
        interruption.ignore()


if __name__ == "__main__":
    sys.exit(run())
