"""What runs are judged by, and how that is written: the one place for all that shows it."""

from typing import NamedTuple


class Score(NamedTuple):
    """A number that tells how good a network is on examples: the higher, the better."""

    name: str
    """Of its columns in metrics.csv, behind ``train_`` and ``test_``."""
    title: str
    factor: float
    """What it is multiplied by to be shown."""
    unit: str
    digits: int
    """Behind the point, where it is shown."""

    def text(self, value: float) -> str:
        """Return a value as it is read.

        >>> ACCURACY.text(0.5), PSNR.text(27.25)
        ('50.00 %', '27.25 dB')
        """
        return f"{self.factor * value:.{self.digits}f} {self.unit}"


ACCURACY = Score("accuracy", "accuracy", 100.0, "%", 2)
PSNR = Score("psnr", "PSNR", 1.0, "dB", 2)
