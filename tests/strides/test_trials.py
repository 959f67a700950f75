"""Trials end near the best strides of their cost, wherever chance takes them."""

import math
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from torch import nn

from diffstride import Budget, DiffStride2d
from diffstride.strides.space import StrideSpace
from diffstride.strides.trials import (
    FEWEST,
    FLATNESS,
    RADII,
    WAVES,
    StrideTrials,
    best,
    finite,
    plane_through,
)

MACS = 2_000_000


class Simplex:
    """A space that takes no time: whatever has the same sum of logarithms costs the same."""

    def __init__(self, number=4):
        self.number = number

    def __len__(self):
        return self.number

    def towards(self, direction):
        return tuple(4 * part / sum(direction) for part in direction)

    def anywhere(self, numbers):
        return self.towards([numbers.random() for _ in range(self.number)])

    random = anywhere

    def keeps(self, point):
        return True


class Holed(Simplex):
    """Half of it misses the budget: there, where a plane through the scores would have all go."""

    def random(self, numbers):
        return next(point for _ in range(100) if self.keeps(point := self.anywhere(numbers)))

    def keeps(self, point):
        return point[0] >= 1


class Problem:
    """A score that is least at one point of a space, with noise, as that of a few examples has."""

    def __init__(self, noise=0.0, seed=0, target=(0.2, 1.0, 0.9, 0.1)):
        self.space = Simplex(len(target))
        self.target = self.space.towards(target)
        self.noise, self.numbers = noise, Random(f"noise {seed}")

    def distance(self, point):
        return math.dist(point, self.target)

    def score(self, point):
        return self.distance(point) ** 2 + self.numbers.gauss(0, self.noise)


def carried_out(trials, score):
    """All waves of trials, and the scores of their points one after another."""
    waves, points, scores = [], [], []
    while wave := trials.next(points, scores):
        waves.append(wave)
        points += wave
        scores += map(score, wave)
    return waves, points, scores


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("target", [(0.2, 1.0, 0.9, 0.1), (0.2, 1.0, 0.9, 0.1, 0.3, 1.0)])
def test_they_end_nearer_to_the_best_than_as_many_random_strides(noise, target):
    ends, of_random = [], []
    for seed in range(8):
        problem = Problem(noise, seed, target)
        _, points, scores = carried_out(StrideTrials(problem.space, seed=seed), problem.score)
        ends.append(problem.distance(points[best(points, scores)]))
        numbers = Random(f"others {seed}")
        others = [problem.space.random(numbers) for _ in points]
        of_random.append(problem.distance(min(others, key=problem.score)))
    assert sum(ends) < 0.75 * sum(of_random)
    assert sum(one < other for one, other in zip(ends, of_random, strict=True)) >= 5  # of 8


def test_what_waves_propose_comes_nearer_to_the_best():
    """Not what is best of all, which more strides at random do as well: the mean of each wave."""
    of_waves = [0.0] * len(WAVES)
    for seed in range(8):
        problem = Problem(0.1, seed)
        waves, _, _ = carried_out(StrideTrials(problem.space, seed=seed), problem.score)
        for i, wave in enumerate(waves):
            of_waves[i] += sum(map(problem.distance, wave)) / len(wave)
    assert all(later < 0.7 * of_waves[0] for later in of_waves[1:])


@pytest.mark.parametrize("number", [*range(FEWEST, 26), 50])
def test_every_wave_ends_at_its_part_of_all_trials(number):
    waves, points, _ = carried_out(StrideTrials(Simplex(2), number), lambda point: point[0])
    assert len(points) == number
    ends, end = [], 0
    for wave in waves:
        ends.append(end := end + len(wave))
    assert len(ends) == len(WAVES) and ends[-1] == number
    for end, part in zip(ends, WAVES, strict=True):
        assert part * number - 1e-6 <= end < part * number + 1
    assert len(set(points)) == number


@pytest.mark.parametrize("number", [-1, 0, 1, FEWEST - 1])
def test_too_few_trials_are_refused(number):
    with pytest.raises(ValueError, match=f"needs {FEWEST} trials or more, got {number}"):
        StrideTrials(Simplex(), number)


def make_space(begin=2.0):
    options = dict(smoothness=0.0, convention="tight")
    model = nn.Sequential(
        DiffStride2d(begin, **options),
        nn.Conv2d(4, 8, 3, padding=1),
        DiffStride2d(2.0, **options),
        nn.Conv2d(8, 16, 3, padding=1),
    )
    return StrideSpace(Budget(model, (4, 128, 128), macs=MACS))


def test_strides_of_a_network_are_on_its_budget_wherever_it_begins():
    """And the same ones are tried, with the same scores."""
    space = make_space()
    waves, points, scores = carried_out(
        StrideTrials(space, FEWEST, seed=3), lambda point: point[0] - point[3]
    )
    for point in points:
        space.write(point)
        assert space.budget.cost == pytest.approx(MACS, rel=0.02)
    assert scores[-1] < min(scores[:3])  # what is asked for is what is proposed
    other = StrideTrials(make_space(1.3), FEWEST, seed=3)
    assert other.next([], []) == waves[0]
    assert other.next(points[:3], scores[:3]) == waves[1]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proposed_lies_as_far_off_as_its_wave_may(seed):
    """The middle of strides at random is known here: all alike."""
    space = Simplex()
    numbers = Random("another")
    some = [math.dist(space.random(numbers), (1.0,) * 4) for _ in range(4000)]
    half = sorted(some)[len(some) // 2]
    slope = Random(f"slope {seed}").choice([0, 1, 2, 3])
    waves, _, _ = carried_out(StrideTrials(space, 24, seed=seed), lambda point: point[slope])
    assert len(waves) == 1 + len(RADII)
    for wave, part in zip(waves[1:], RADII, strict=True):
        # Both are known to some per cent, from 200 of them.
        assert max(math.dist(point, (1.0,) * 4) for point in wave) < 1.2 * part * half
        # Far enough off to be worth it: a plane always says that the farthest is best.
        assert max(math.dist(point, (1.0,) * 4) for point in wave) > 0.6 * part * half
    anywhere = Random(f"{seed} trials 0")
    assert waves[0] == [space.random(anywhere) for _ in range(12)]


@pytest.mark.parametrize("seed", range(3))
def test_what_misses_the_budget_is_not_tried_however_good_it_looks(seed):
    for space, share in ((Holed(), 1.0), (Simplex(), 0.7)):
        _, points, _ = carried_out(StrideTrials(space, seed=seed), lambda point: point[0])
        kept = [point for point in points if Holed().keeps(point)]
        assert (len(kept) == len(points)) == (share == 1.0)
        assert len(kept) <= share * len(points)


def test_what_is_tried_depends_on_the_seed_and_the_scores_alone():
    problem = Problem()
    trials = StrideTrials(problem.space, seed=1)
    waves, points, scores = carried_out(trials, problem.score)
    again = StrideTrials(Simplex(), seed=1)
    for wave, end in reversed([*zip(waves, (0, 6, 8, 10), strict=True)]):  # in whatever order
        for _ in range(2):
            assert again.next(points[:end], scores[:end]) == wave
    assert again.next(points, scores) == []
    others, _, _ = carried_out(StrideTrials(Simplex(), seed=2), problem.score)
    assert not {point for wave in others for point in wave} & set(points)
    # Other scores of the first: the same ones to try at first, and others then.
    changed = [point[0] for point in points[:6]]
    assert trials.next([], []) == waves[0]
    assert trials.next(points[:6], changed) != waves[1]
    # A wave that an earlier version has left half done is brought to its end.
    assert len(trials.next(points[:7], scores[:7])) == 1


def test_one_score_more_or_less_is_the_same_to_a_plane():
    """What is proposed follows from differences of scores: not from how high they are."""
    problem = Problem()
    _, points, scores = carried_out(StrideTrials(problem.space), problem.score)
    higher = [64 + 2 * score for score in scores]
    trials = StrideTrials(problem.space)
    assert trials.next(points[:8], higher[:8]) == trials.next(points[:8], scores[:8])
    assert best(points, higher) == best(points, scores)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_counts_as_the_worst(wrong):
    """Not as the best, as sorting with NaN would have it where it comes first."""
    assert finite([wrong, 1.0, wrong, 3.0]) == [3.0, 1.0, 3.0, 3.0]
    points = [(0.0, 3.0), (1.0, 2.0), (2.0, 1.0), (3.0, 0.0)]
    assert best(points, [wrong, 1.0, wrong, 3.0]) == best(points, [3.0, 1.0, 3.0, 3.0]) == 1
    problem = Problem()
    trials = StrideTrials(problem.space, seed=4)
    first = trials.next([], [])
    scores = [wrong, *map(problem.score, first[1:])]
    worst = [max(scores[1:]), *scores[1:]]
    assert trials.next(first, scores) == trials.next(first, worst)
    waves, points, scores = carried_out(
        StrideTrials(problem.space, seed=4),
        lambda point: wrong if point[0] > 1 else problem.score(point),
    )
    assert any(not math.isfinite(score) for score in scores)
    assert math.isfinite(scores[best(points, scores)])
    # Where training diverged is left.
    assert all(point[0] < 1 for wave in waves[2:] for point in wave)


def test_if_no_score_is_a_number_it_is_said():
    trials = StrideTrials(Simplex(), FEWEST)
    first = trials.next([], [])
    message = "none of 3 trials has a loss that is a finite number: training diverged"
    for wrong in (math.nan, math.inf):
        with pytest.raises(FloatingPointError, match=message):
            trials.next(first, [wrong] * 3)
        with pytest.raises(FloatingPointError, match=message):
            best(first, [wrong] * 3)


@pytest.mark.parametrize(("points", "dimensions"), [(3, 4), (6, 4), (12, 6), (50, 2)])
def test_a_plane_is_that_of_ridge_regression(points, dimensions):
    """By another way: least squares with one more row for each stride, which wants no slope."""
    numbers = np.random.default_rng(points)
    x = numbers.normal(size=(points, dimensions)) * [1, 10, 0.1, 3, 2, 5][:dimensions] + 7
    y = numbers.normal(size=points) - 3
    standard = (x - x.mean(0)) / x.std(0)
    rows = np.vstack([standard, math.sqrt(FLATNESS * dimensions) * np.eye(dimensions)])
    wanted = np.append(y - y.mean(), np.zeros(dimensions))
    slopes = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    plane = plane_through([tuple(row) for row in x.tolist()], y.tolist())
    for at in numbers.normal(size=(5, dimensions)) * 4:
        expected = y.mean() + slopes @ ((at - x.mean(0)) / x.std(0))
        assert plane(tuple(at.tolist())) == pytest.approx(expected, rel=1e-9)


def test_a_plane_through_two_points_is_as_flat_as_it_is_told():
    plane = plane_through([(1.0,), (3.0,)], [10.0, 14.0])
    assert plane((2.0,)) == pytest.approx(12)
    slope = 4 / (2 + FLATNESS)  # in standard deviations, of which there is one from point to middle
    assert plane((3.0,)) - plane((2.0,)) == pytest.approx(slope)
    assert plane((6.0,)) - plane((2.0,)) == pytest.approx(4 * slope)


def test_many_scores_of_a_plane_are_known_to_be_one():
    points = [Simplex(3).random(Random(f"point {i}"))[:2] for i in range(400)]
    plane = plane_through(points, [5 + 2 * x - 3 * y for x, y in points])
    for x, y in ((0.0, 0.0), (1.0, 3.0)):
        assert plane((x, y)) == pytest.approx(5 + 2 * x - 3 * y, abs=0.05)


def test_a_stride_that_never_varies_says_nothing():
    varied = [0.0, 1.0, 2.0, 5.0]
    scores = [1.0, 0.0, 4.0, 3.0]
    plane = plane_through([(x, 0.7) for x in varied], scores)
    assert plane((3.0, 0.7)) == pytest.approx(plane((3.0, 90.0)))
    assert plane((3.0, 0.7)) != pytest.approx(plane((4.0, 0.7)))
    flat = plane_through([(0.7, 0.2)] * 4, scores)
    assert flat((5.0, 1.0)) == pytest.approx(2)
    assert flat((0.7, 0.2)) == pytest.approx(2)


def test_what_is_best_is_so_by_its_own_score_and_by_those_of_others():
    line = [(float(i),) for i in range(8)]
    scores = [float(i) for i in range(8)]
    assert best(line, scores) == 0
    # The lowest one among bad ones is chance; that among good ones is not.
    assert best(line, [*scores[:7], -0.5]) == 0
    assert best(line, [0.0, -2.0, *scores[2:]]) == 1
    # If it is far lower, it is the best all the same.
    assert best(line, [*scores[:7], -20.0]) == 7
    plane = plane_through(line, scores)
    both = [score + plane(point) for score, point in zip(scores, line, strict=True)]
    assert all(one < other for one, other in pairwise(both))


def test_what_diverged_is_never_best_however_few_did_not():
    points = [(0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]
    assert best(points, [math.nan, 1.0, math.inf]) == 1
    assert best(points, [math.nan, math.inf, 1.0]) == 2
