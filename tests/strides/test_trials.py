"""Trials end near the best strides of their cost, wherever chance takes them."""

import json
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from diffstride import Budget, DiffStride2d
from diffstride.strides.space import StrideSpace
from diffstride.strides.trials import FIRST, KEPT, LATER, ROUNDS, StrideTrials

MACS = 2_000_000
SCORED = FIRST + (len(ROUNDS) - 1) * LATER


def make_space():
    options = dict(smoothness=0.0, convention="tight")
    model = nn.Sequential(
        DiffStride2d(2.0, **options),
        nn.Conv2d(4, 8, 3, padding=1),
        DiffStride2d(2.0, **options),
        nn.Conv2d(8, 16, 3, padding=1),
    )
    return StrideSpace(Budget(model, (4, 128, 128), macs=MACS))


def distance(one, other):
    return math.dist(one, other)


class Problem:
    """A score that is least at a point of the budget, with noise, as that of a few examples has."""

    def __init__(self, noise=0.0, seed=0):
        self.space = make_space()
        self.target = self.space.towards([0.2, 1.0, 0.9, 0.1])
        self.noise, self.numbers = noise, Random(f"noise {seed}")

    def at(self, point):
        return distance(point, self.target) ** 2 + self.numbers.gauss(0, self.noise)

    def score(self):
        return self.at(self.space.read())


def carried_out(found, steps):
    for _ in range(steps):
        found.begin_step()
        found.end_step()
    found.finish()


def test_they_end_near_the_best_and_nearer_than_random_strides():
    noise, ends, of_random = 0.05, [], []
    for seed in range(3):
        problem = Problem(noise, seed)
        found = StrideTrials(problem.space, 40, problem.score, seed=seed)
        carried_out(found, 40)
        ends.append(distance(problem.space.read(), problem.target))
        assert problem.space.budget.cost == pytest.approx(MACS, rel=0.02)
        points = [problem.space.random(Random(f"{seed} {i}")) for i in range(SCORED)]
        of_random.append(distance(min(points, key=problem.at), problem.target))
    assert max(ends) < math.sqrt(2 * noise)  # nearer than that, noise hides what is better
    assert sum(ends) < 0.7 * sum(of_random)


@pytest.mark.parametrize("steps", [*range(6, 13), 40, 101])
def test_every_round_takes_place_and_the_last_is_the_last_step(steps):
    problem = Problem()
    found = StrideTrials(problem.space, steps, lambda: 1.0)
    ends = []
    for step in range(1, steps + 1):
        found.begin_step()
        if found.end_step():
            ends.append(step)
    assert len(ends) == found.rounds == len(ROUNDS)
    assert ends[-1] == steps
    assert [entry["step"] for entry in found.history] == ends
    wanted = [part * steps for part in ROUNDS]
    assert all(abs(a - b) <= 1 for a, b in zip(ends, wanted, strict=True))
    assert [len(entry["scores"]) for entry in found.history] == [FIRST] + [LATER] * 5


def test_fewer_steps_than_rounds_are_refused():
    with pytest.raises(ValueError, match="needs 6 steps of training or more, got 5"):
        StrideTrials(make_space(), 5, lambda: 0.0)


def test_the_best_are_kept_the_best_first():
    problem = Problem()
    found = StrideTrials(problem.space, 12, problem.score)
    for _ in range(12):
        found.begin_step()
        if found.end_step():
            scores = found.history[-1]["scores"]
            # Those of parameters, which round.
            now = [problem.at(point) for point in found.kept]
            assert now == pytest.approx(sorted(scores)[:KEPT], abs=1e-5)
            assert found.history[-1]["kept"] == found.kept
    best = [min(entry["scores"]) for entry in found.history]
    assert best == sorted(best, reverse=True)  # without noise, nothing good is lost


STEPS = 9


def one_run(seed=0):
    """States before each step, and where the network was in it."""
    problem = Problem()
    found = StrideTrials(problem.space, STEPS, problem.score, seed=seed)
    states, tried = [], []
    for _ in range(STEPS):
        states.append(found.state_dict())
        found.begin_step()
        tried.append(problem.space.read())
        found.end_step()
    states.append(found.state_dict())
    found.finish()
    return states, tried, problem.space.read()


@pytest.fixture(scope="module")
def whole():
    return one_run()


@given(stops=st.sets(st.integers(0, STEPS)))
@settings(max_examples=5)
def test_what_was_stopped_goes_on_as_if_it_had_not_been(whole, stops):
    states, tried, end = whole
    problem, found = Problem(), None
    for step in range(STEPS + 1):
        if found is None or step in stops:
            state = found.state_dict() if found else states[0]
            problem = Problem()  # as in another process
            found = StrideTrials(problem.space, STEPS, problem.score)
            found.load_state_dict(json.loads(json.dumps(state)))
        assert json.dumps(found.state_dict()) == json.dumps(states[step])
        if step < STEPS:
            found.begin_step()
            assert problem.space.read() == tried[step]
            found.end_step()
    found.finish()
    assert problem.space.read() == end


def test_a_state_stays_what_it_was(whole):
    states, _, _ = whole
    assert [state["step"] for state in states] == list(range(STEPS + 1))
    assert [len(state["history"]) for state in states] == sorted(
        len(state["history"]) for state in states
    )
    assert states[0] == {"step": 0, "kept": [], "history": []}


def test_what_is_tried_depends_on_seed_and_step_alone(whole):
    _, tried, _ = whole
    problem = Problem()
    problem.space.write(problem.space.random(Random(5)))  # another beginning
    found = StrideTrials(problem.space, STEPS, problem.score)
    found.begin_step()
    found.begin_step()  # however often it is asked
    assert problem.space.read() == tried[0]
    assert len(set(tried)) == STEPS
    others = one_run(seed=1)[1]
    assert not set(others) & set(tried)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_never_best(wrong):
    """Not even where it comes first, as sorting with NaN would have it."""
    problem, bad = Problem(), []

    def score():
        point = problem.space.read()
        if point[0] > point[1] or not bad:
            bad.append(point)
            return wrong
        return problem.score()

    found = StrideTrials(problem.space, 12, score)
    carried_out(found, 12)
    assert bad
    for entry in found.history:
        finite = sorted(filter(math.isfinite, entry["scores"]))
        assert len(finite) < len(entry["scores"]) or entry is not found.history[0]
        kept = [distance(point, problem.target) ** 2 for point in entry["kept"]]
        assert kept == pytest.approx(finite[:KEPT], abs=1e-5)


def test_if_few_scores_are_numbers_few_are_kept():
    problem, count = Problem(), iter(range(10_000))
    found = StrideTrials(
        problem.space, 6, lambda: problem.score() if next(count) % 20 == 3 else math.nan
    )
    carried_out(found, 6)
    assert [len(entry["kept"]) for entry in found.history][:2] == [3, 1]
    assert problem.space.budget.cost == pytest.approx(MACS, rel=0.02)


def test_if_no_score_is_a_number_it_is_said():
    space = make_space()
    found = StrideTrials(space, 6, lambda: math.nan)
    found.begin_step()
    message = "after step 1 no strides have a score that is a finite number, the first of 48 have"
    with pytest.raises(FloatingPointError, match=message):
        found.end_step()
    assert found.rounds == 0


def test_without_a_round_strides_stay():
    space = make_space()
    before = space.read()
    found = StrideTrials(space, 100, lambda: 0.0)
    found.finish()
    assert space.read() == before
