"""What runs are judged by, and how that is written: the one place for all that shows it."""

from typing import NamedTuple


class Score(NamedTuple):
    """A number that tells how good a network is on examples: as a rule the higher, the better."""

    name: str
    """Of its columns in metrics.csv, behind ``train_`` and ``test_``."""
    title: str
    factor: float
    """What it is multiplied by to be shown."""
    unit: str
    words: str
    """The unit in a sentence: "in percent"."""
    difference: str
    """What a difference of two is counted in."""
    digits: int
    """Behind the point, where there is room."""
    few_digits: int
    """Behind the point, in tables."""
    most: float | None = None
    """The highest value there is."""
    lower_is_better: bool = False

    def text(self, value: float, digits: int | None = None) -> str:
        """Return a value as it is read.

        >>> ACCURACY.text(0.5), PSNR.text(27.25), PSNR.text(27.25, 1)
        ('50.00 %', '27.25 dB', '27.2 dB')
        """
        digits = self.digits if digits is None else digits
        return f"{self.factor * value:.{digits}f} {self.unit}".rstrip()

    def short(self, value: float | None) -> str:
        """Return a value as tables have it; a dash if it is not known."""
        return "–" if value is None else self.text(value, self.few_digits)

    def points(self, difference: float) -> str:
        """Return by how much one value is above another.

        >>> ACCURACY.points(0.01234), PSNR.points(-0.5)
        ('+1.23', '−0.50')
        """
        value = round(self.factor * difference, self.digits) + 0.0  # without −0
        return f"{value:+.{self.digits}f}".replace("-", "−")

    @property
    def column(self) -> str:
        """The column of metrics.csv with its value on test data."""
        return f"test_{self.name}"

    @property
    def heading(self) -> str:
        """Its title, as a heading begins."""
        return self.title[:1].upper() + self.title[1:]

    @property
    def axis(self) -> str:
        """What is written along an axis of a figure."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


ACCURACY = Score("accuracy", "accuracy", 100.0, "%", "percent", "points", 2, 1, most=1.0)
PSNR = Score("psnr", "PSNR", 1.0, "dB", "dB", "dB", 2, 2)
NOISY = "noisy"
"""How columns begin that have a score of images as they came, before a network restored them."""


def score_of(noise: float | None) -> Score:
    """Return what a run is judged by, from its setting ``data.noise``.

    >>> score_of(None).title, score_of(0.1).title
    ('accuracy', 'PSNR')
    """
    return ACCURACY if noise is None else PSNR
