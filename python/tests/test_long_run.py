"""Long-run questions against exact rational arithmetic and closed forms."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from chains import queue

import kolmo

U = np.finfo(float).eps


def solved(a, b):
    """Solve A X = B exactly, for a nonsingular M-matrix A: no pivot is 0."""
    n, a, b = len(a), [list(row) for row in a], [list(row) for row in b]
    for k in range(n):
        for i in range(k + 1, n):
            if a[i][k]:
                f = a[i][k] / a[k][k]
                for row in (a, b):
                    row[i] = [x - f * y for x, y in zip(row[i], row[k], strict=True)]
    for k in reversed(range(n)):
        for j in range(k + 1, n):
            b[k] = [x - a[k][j] * y for x, y in zip(b[k], b[j], strict=True)]
        b[k] = [x / a[k][k] for x in b[k]]
    return b


def reach(rates, sets, through):
    """States with a path into `sets` through `through`, `sets` included."""
    found = set(sets)
    while more := {i for i in through - found if any(rates[i, j] for j in found)}:
        found |= more
    return found


def before(rates, states):
    """-Q on some states, in exact fractions."""
    exit = {i: sum(Fraction(x) for j, x in enumerate(rates[i]) if j != i) for i in states}
    return [[exit[i] if i == j else -Fraction(rates[i, j]) for j in states] for i in states]


def exact_values(rates, ends, there, reward):
    """Totals from each state until one of `ends`, which is reached for certain."""
    n = len(rates)
    open_states = [i for i in range(n) if i not in ends]
    earned = [
        [Fraction(reward[i]) + sum(Fraction(rates[i, j]) * there[j] for j in ends)] for i in open_states
    ]
    values = {i: Fraction(there[i]) for i in ends}
    values.update((i, x[0]) for i, x in zip(open_states, solved(before(rates, open_states), earned), strict=True))
    return [values[i] for i in range(n)]


def closed_classes(rates):
    n = len(rates)
    everything = set(range(n))
    after = [{j for j in range(n) if i in reach(rates, {j}, everything)} for i in range(n)]
    classes = {frozenset(after[i]) for i in range(n) if all(i in after[j] for j in after[i])}
    return sorted(map(sorted, classes))


def exact_visits(rates, start, ends):
    """Expected time in each state until one of `ends`, which is reached for certain from `start`."""
    n = len(rates)
    open_states = [i for i in range(n) if i not in ends]
    m = before(rates, open_states)
    turned = [list(column) for column in zip(*m, strict=True)]
    values = solved(turned, [[Fraction(start[i])] for i in open_states])
    found = dict(zip(open_states, (x[0] for x in values), strict=True))
    return [found.get(i, Fraction(0)) for i in range(n)]


def exact_stationary(rates, members):
    """The stationary distribution of a closed class, from the visits between two visits of a state."""
    n, z = len(rates), members[0]
    inside = rates.copy()
    inside[[i for i in range(n) if i not in members]] = 0
    start = [Fraction(rates[z, j]) if j != z else Fraction(0) for j in range(n)]
    outside = {i for i in range(n) if i not in members} | {z}
    times = exact_visits(inside, start, outside)
    # Per unit of time in z, the chain enters j at the rate start[j].
    times[z] = Fraction(1)
    whole = sum(times)
    return [x / whole for x in times]


def random_rates(kind, rng, n=10):
    """Rates of a chain of some kind; the last states are absorbing in those with an end."""
    dense = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    dense[np.arange(n), (np.arange(n) + 1) % n] += 0.1
    dense[0, n - 1] += 0.1
    if kind == "decomposable":
        block = np.arange(n) // 5
        dense = np.where(block[:, None] == block, dense, dense * 1e-14)
    elif kind == "decades":
        dense *= 10.0 ** rng.integers(-15, 16, (n, n))
    elif kind == "periodic":
        dense = np.where((np.arange(n)[:, None] + np.arange(n)) % 2 == 1, dense, 0)
    elif kind == "classes":
        # States 0 to 3 lead to the classes {4, 5, 6} and {7, 8}, and to 9.
        block = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3])
        dense = np.where((block[:, None] == block) | (block[:, None] == 0), dense + 0.01, 0)
    elif kind == "absorbing":
        dense[n - 2 :] = 0
    np.fill_diagonal(dense, 0)
    return dense


def stochastic(rates):
    """The same chain in discrete time, with every entry exact: rates are multiples of 2**-k below 1."""
    p = np.round(rates / rates.sum(axis=1).max() * 2**20) / 2**20 * 0.5
    p[np.arange(len(p)), np.arange(len(p))] = 1 - p.sum(axis=1)
    return p


KINDS = ["dense", "decomposable", "decades", "periodic", "classes", "absorbing"]


def expect_within(values, bounds, exact):
    """All errors are within bounds, in exact arithmetic."""
    for value, bound, wanted in zip(values, bounds, exact, strict=True):
        assert abs(Fraction(value) - wanted) <= Fraction(bound), (value, bound, float(wanted))


def expect_probabilities(p):
    assert np.all((p >= 0) & (p <= 1)) and not np.any(np.signbit(p))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_absorption_is_exact_within_its_bounds(kind, seed):
    rates = random_rates(kind, np.random.default_rng(seed))
    n = len(rates)
    targets = {"a": n - 1, "b": [2, 4]}
    everything = {n - 1, 2, 4}
    r = kolmo.absorption(rates, targets, kind="rates")
    assert r.met and r.targets == ["a", "b"] and r.p.shape == r.bound.shape == (n, 2)
    passing = set(range(n)) - everything
    ends = everything | (set(range(n)) - reach(rates, everything, passing))
    for k, states in enumerate(([n - 1], [2, 4])):
        exact = exact_values(rates, ends, [int(i in states) for i in range(n)], [0] * n)
        expect_within(r.p[:, k], r.bound[:, k], exact)
    expect_probabilities(r.p)
    none = np.array([i not in reach(rates, everything, passing) for i in range(n)])
    assert not r.p[none].any() and not r.bound[none].any()
    failing = reach(rates, set(np.flatnonzero(none)), passing)
    sure = np.array([i not in failing for i in range(n)])
    assert np.all(abs(r.p[sure].sum(axis=1) - 1) <= r.bound[sure].sum(axis=1) + 2 * U)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_hitting_times_and_rewards_are_exact_within_their_bounds(kind, seed):
    rng = np.random.default_rng(seed)
    rates = random_rates(kind, rng)
    n = len(rates)
    target = [n - 1] if kind == "classes" else [n - 1, n - 2]
    passing = set(range(n)) - set(target)
    endless = reach(rates, set(range(n)) - reach(rates, set(target), passing), passing)
    finite = np.array([i not in endless for i in range(n)])
    rewards = rng.integers(-4, 5, n)
    for r, reward in (
        (kolmo.hitting_time(rates, target, kind="rates"), np.ones(n)),
        (kolmo.expected_reward(rates, rewards, until=target, kind="rates"), rewards),
    ):
        exact = exact_values(rates, set(target) | endless, [0] * n, [int(x) for x in reward])
        assert r.met and not np.any(np.signbit(r.values) & (r.values == 0))
        assert np.all(np.isinf(r.values) == ~finite) and np.all(r.bound[~finite] == 0)
        expect_within(r.values[finite], r.bound[finite], [x for x, f in zip(exact, finite, strict=True) if f])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_visits_are_exact_within_their_bound(kind, seed):
    rng = np.random.default_rng(seed)
    rates = random_rates(kind, rng)
    n = len(rates)
    closed = {i for members in closed_classes(rates) for i in members}
    start = np.round(rng.random(n) * 64) * (rng.random(n) < 0.5)
    start[0] += 1
    start /= 2 ** np.ceil(np.log2(start.sum()))
    start[1] += 1 - start.sum()
    until = None if kind in ("classes", "absorbing") else n - 1
    r = kolmo.visits(rates, start, until=until, kind="rates")
    exact = exact_visits(rates, start, closed if until is None else {n - 1})
    assert r.met and not np.any(np.signbit(r.values))
    error = sum(abs(Fraction(x) - y) for x, y in zip(r.values, exact, strict=True))
    assert error <= Fraction(r.bound), (float(error), r.bound)
    # The sum of the visits is the time until absorption.
    times = kolmo.hitting_time(rates, sorted(closed) if until is None else until)
    mean = start @ times.values
    assert abs(r.values.sum() - mean) <= r.bound + times.bound.max() + 16 * U * mean


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_stationary_distributions_are_exact_within_their_bound(kind, seed):
    rates = random_rates(kind, np.random.default_rng(seed))
    n = len(rates)
    classes = closed_classes(rates)
    if len(classes) == 1:
        r = kolmo.stationary(rates, kind="rates")
        exact = exact_stationary(rates, classes[0])
    else:
        with pytest.raises(ValueError, match=f"the chain has {len(classes)} closed classes.*expected one closed class"):
            kolmo.stationary(rates)
        r = kolmo.stationary(rates, 0)
        everything = {i for members in classes for i in members}
        exact = [Fraction(0)] * n
        for members in classes:
            share = exact_values(rates, everything, [int(i in members) for i in range(n)], [0] * n)[0]
            exact = [x + share * y for x, y in zip(exact, exact_stationary(rates, members), strict=True)]
    error = sum(abs(Fraction(x) - y) for x, y in zip(r.p, exact, strict=True))
    assert r.met and error <= Fraction(r.bound), (float(error), r.bound)
    expect_probabilities(r.p)
    assert abs(r.p.sum() - 1) <= r.bound + 8 * U


@pytest.mark.filterwarnings("ignore::kolmo.BoundWarning")
@pytest.mark.parametrize("kind", [*KINDS, "wide"])
@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_exact_within_their_bounds(kind, seed):
    rng = np.random.default_rng(seed)
    rates = random_rates("dense", rng, 30) if kind == "wide" else random_rates(kind, rng)
    n = len(rates)
    by = {"a": rates * rng.integers(-3, 4, (n, n)), "b": sp.csr_array((rates > 0) * rng.random((n, n)))}
    changes = {name: np.array(d.todense() if sp.issparse(d) else d) for name, d in by.items()}
    everything, target, rewards = {n - 1, 2, 4}, {n - 1, n - 2}, [int(x) for x in rng.integers(-4, 5, n)]
    lost = set(range(n)) - reach(rates, everything, set(range(n)) - everything)
    a = kolmo.absorption(rates, {"a": n - 1, "b": [2, 4]}, kind="rates", gradient=by)
    cases = [
        (a.gradient, a.gradient_bound, (slice(None), k), everything | lost, [int(i in states) for i in range(n)], [0] * n)
        for k, states in enumerate(([n - 1], [2, 4]))
    ]
    if kind != "classes":
        r = kolmo.expected_reward(rates, rewards, until=sorted(target), kind="rates", gradient=by)
        cases.append((r.gradient, r.gradient_bound, slice(None), target, [0] * n, rewards))
    for gradient, bound, column, ends, there, reward in cases:
        v = exact_values(rates, ends, there, reward)
        states = [i for i in range(n) if i not in ends]
        for name, d in changes.items():
            moved = [[sum(Fraction(d[i, j]) * (v[j] - v[i]) for j in range(n))] for i in states]
            exact = dict(zip(states, (x[0] for x in solved(before(rates, states), moved)), strict=True))
            exact = [exact.get(i, Fraction(0)) for i in range(n)]
            expect_within(gradient[name][column], bound[name][column], exact)
            size = max(1, *map(abs, v), *map(abs, exact))
            assert kind in ("decades", "decomposable") or np.max(bound[name][column]) <= 1e-9 * size
    classes = closed_classes(rates)
    s = kolmo.stationary(rates, 0, kind="rates", gradient=by)
    ends = {i for members in classes for i in members}
    passing = [i for i in range(n) if i not in ends]
    for name, d in changes.items():
        exact = [Fraction(0)] * n
        for members in classes:
            # The limit is the sum of p pi over the classes, with the probability p of reaching one.
            v = exact_values(rates, ends, [int(i in members) for i in range(n)], [0] * n)
            moved = [[sum(Fraction(d[i, j]) * (v[j] - v[i]) for j in range(n))] for i in passing]
            slopes = dict(zip(passing, (x[0] for x in solved(before(rates, passing), moved)), strict=True))
            pi, z = exact_stationary(rates, members), max(members, key=lambda i: s.p[i])
            states = [i for i in members if i != z]
            turned = [list(column) for column in zip(*before(rates, states), strict=True)]
            flow = [[sum(pi[i] * Fraction(d[i, j]) - pi[j] * Fraction(d[j, i]) for i in range(n))] for j in states]
            y = dict(zip(states, (x[0] for x in solved(turned, flow)), strict=True))
            whole = sum(y.values())
            for i in members:
                exact[i] += slopes.get(0, 0) * pi[i] + v[0] * (y.get(i, Fraction(0)) - whole * pi[i])
        error = float(sum(abs(Fraction(x) - wanted) for x, wanted in zip(s.gradient[name], exact, strict=True)))
        assert error <= s.gradient_bound[name], (error, s.gradient_bound[name])
        size = max(1, float(sum(map(abs, exact))))
        assert kind in ("decades", "decomposable") or s.gradient_bound[name] <= 1e-9 * size


@pytest.mark.parametrize("digits", [4, 6, 8, 10, 12])
def test_stationary_derivatives_of_loosely_coupled_blocks_meet_epsilon(digits):
    n = 10
    rng = np.random.default_rng(digits)
    dense, inside = rng.random((n, n)), np.subtract.outer(np.arange(n) // 5, np.arange(n) // 5) == 0
    np.fill_diagonal(dense, 0)
    rates = np.where(inside, dense, 10.0**-digits * dense)
    by = {"inside": np.where(inside, rng.random((n, n)) * dense, 0), "between": np.where(inside, 0, dense * rng.random((n, n)))}
    s = kolmo.stationary(rates, kind="rates", gradient=by)
    assert s.met
    pi = exact_stationary(rates, list(range(n)))
    turned = [list(column) for column in zip(*before(rates, list(range(1, n))), strict=True)]
    for name, d in by.items():
        flow = [[sum(pi[i] * Fraction(d[i, j]) - pi[j] * Fraction(d[j, i]) for i in range(n))] for j in range(1, n)]
        y = [Fraction(0), *(x[0] for x in solved(turned, flow))]
        whole = sum(y)
        error = sum(abs(Fraction(x) - (v - whole * p)) for x, v, p in zip(s.gradient[name], y, pi, strict=True))
        assert error <= Fraction(s.gradient_bound[name]) <= 1e-9 * max(1, np.abs(s.gradient[name]).sum())


@pytest.mark.parametrize("kind", ["dense", "periodic"])
def test_a_stochastic_matrix_counts_steps_and_visits(kind):
    p = stochastic(random_rates(kind, np.random.default_rng(7)))
    n = len(p)
    fundamental = np.linalg.inv(np.eye(n - 1) - p[:-1, :-1])
    for form in (p, sp.csr_array(p), sp.csc_array(p)):
        times, visits = kolmo.hitting_time(form, n - 1), kolmo.visits(form, 2, until=[n - 1])
        assert times.kind == visits.kind == "stochastic"
        np.testing.assert_allclose(times.values[:-1], fundamental.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(visits.values[:-1], fundamental[2], rtol=1e-12)
    # The generator P - I is the same chain.
    again = kolmo.hitting_time(p - np.eye(n), n - 1)
    assert again.kind == "generator" and np.array_equal(again.values, times.values)


def test_ruin_of_a_gambler_has_the_closed_form():
    n, odds = 1000, Fraction(11, 10)
    # Up at the rate 10, down at the rate 11; 0 and n are absorbing.
    up, down = np.full(n, 10.0), np.full(n, 11.0)
    up[0] = down[-1] = 0
    rates = sp.diags_array([up, down], offsets=[1, -1]).tocsr()
    r = kolmo.absorption(rates, {"rich": n, "ruined": 0})
    rich = [(odds**i - 1) / (odds**n - 1) for i in range(n + 1)]
    expect_within(r.p[:, 0], r.bound[:, 0], rich)
    expect_within(r.p[:, 1], r.bound[:, 1], [1 - x for x in rich])
    assert r.met and 0 < r.p[1, 0] < 1e-40 and r.bound[1, 0] < 1e-6 * r.p[1, 0]
    # The mean net loss is 1 per unit of time.
    times = kolmo.hitting_time(rates, [0, n])
    expect_within(times.values, times.bound, [i - n * x for i, x in enumerate(rich)])


def test_a_queue_and_a_loss_system_have_their_closed_forms():
    load, n = Fraction(9, 10), 150
    weights = [load**i for i in range(n)]
    r = kolmo.stationary(queue(n, 9.0, 10.0))
    assert r.kind == "generator" and r.met
    error = sum(abs(Fraction(x) - w / sum(weights)) for x, w in zip(r.p, weights, strict=True))
    assert error <= Fraction(r.bound)
    # Erlang's loss formula: 20 lines, offered load 15.
    lines = 20
    rates = sp.diags_array([np.full(lines, 15.0), np.arange(1.0, lines + 1)], offsets=[1, -1])
    weights = [Fraction(15**k, factorial(k)) for k in range(lines + 1)]
    r = kolmo.stationary(rates.tocsr())
    assert abs(Fraction(r.p[-1]) - weights[-1] / sum(weights)) <= Fraction(r.bound)


def test_stages_and_collected_coupons_have_their_closed_forms():
    # Erlang's distribution: 50 stages of rate 3.
    stages = sp.diags_array([np.full(50, 3.0)], offsets=[1], shape=(51, 51)).tocsr()
    r = kolmo.hitting_time(stages, 50)
    expect_within(r.values, r.bound, [Fraction(50 - i, 3) for i in range(51)])
    v = kolmo.visits(stages, 0)
    assert sum(abs(Fraction(x) - Fraction(1, 3)) for x in v.values[:50]) <= Fraction(v.bound) and v.values[50] == 0
    # With k of 8 coupons a new one comes at the rate (8 - k)/8.
    coupons = sp.diags_array([np.arange(8, 0, -1) / 8.0], offsets=[1], shape=(9, 9)).tocsr()
    r = kolmo.hitting_time(coupons, 8)
    expect_within(r.values, r.bound, [sum(Fraction(8, 8 - k) for k in range(i, 8)) for i in range(9)])


def test_a_walk_on_a_cube_has_the_closed_form():
    # States of the cube are sets of bits; a step turns one of 7. 0 is visited every 2**7 steps.
    bits = 7
    states = np.arange(2**bits)
    to = (states[:, None] ^ 2 ** np.arange(bits)).ravel()
    p = sp.csr_array((np.full(len(to), 1 / bits), (np.repeat(states, bits), to)), (2**bits, 2**bits))
    p.sum_duplicates()
    r = kolmo.stationary(p)
    assert r.kind == "stochastic" and abs(r.p - 2.0**-bits).sum() <= r.bound
    times = kolmo.hitting_time(p, 0)
    first = 2**bits - 1
    assert np.all(abs(times.values[[1, 2, 4]] - first) <= times.bound[[1, 2, 4]] + 4 * U * first)
    # From the opposite corner, by the times from k different bits to k - 1.
    steps = [Fraction(1)]
    for k in range(bits - 1, 0, -1):
        steps.append((bits + (bits - k) * steps[-1]) / k)
    assert steps[-1] == first
    assert abs(Fraction(times.values[-1]) - sum(steps)) <= Fraction(times.bound[-1]) + Fraction(8 * U) * sum(steps)


def test_large_sparse_chains_match_a_direct_solver():
    n, rng = 2500, np.random.default_rng(3)
    to = rng.integers(0, n, (n, 8))
    to[:, 0] = (np.arange(n) + 1) % n
    p = sp.csr_array((rng.random(8 * n) + 0.1, (np.repeat(np.arange(n), 8), to.ravel())), (n, n))
    p.sum_duplicates()
    p.data /= np.repeat(p.sum(axis=1), np.diff(p.indptr))
    targets = {"a": np.arange(10), "b": np.arange(n) >= n - 20, "c": [100, 200, 300]}
    r = kolmo.absorption(p, targets)
    assert r.met and r.kind == "stochastic" and np.all(r.bound <= 1e-9)
    expect_probabilities(r.p)
    ends = np.zeros(n, dtype=bool)
    for states in targets.values():
        ends[states] = True
    q = (sp.eye_array(n) - p).tocsr()[~ends]
    into = [np.asarray(p[~ends][:, states].sum(axis=1)).ravel() for states in targets.values()]
    x = sp.linalg.spsolve(q[:, ~ends].tocsc(), np.column_stack([*into, np.ones(n - ends.sum())]))
    assert np.all(abs(r.p[~ends] - x[:, :3]) <= r.bound[~ends] + 1e-13)
    assert np.all(abs(r.p.sum(axis=1) - 1) <= r.bound.sum(axis=1) + 4 * U)
    times = kolmo.hitting_time(p, ends)
    assert times.met and np.all(abs(times.values[~ends] - x[:, 3]) <= times.bound[~ends] + 1e-12 * x[:, 3].max())


def test_files_chains_and_models_are_accepted_with_their_labels(tmp_path):
    rates = np.array([[0, 2.0, 0, 0], [3, 0, 2, 0], [0, 3, 0, 2], [0, 0, 3, 0]])
    sp.save_npz(tmp_path / "queue.npz", sp.csr_array(rates))
    (tmp_path / "queue.sm").write_text(
        "ctmc module queue q : [0..3]; [] q<3 -> 2 : (q'=q+1); [] q>0 -> 3 : (q'=q-1); endmodule "
        'label "full" = q=3; rewards "length" true : q; endrewards'
    )
    model = kolmo.Model(tmp_path / "queue.sm")
    times = kolmo.hitting_time(rates, 3)
    for subject in (str(tmp_path / "queue.npz"), tmp_path / "queue.npz", kolmo.read(tmp_path / "queue.npz"), model):
        assert np.array_equal(kolmo.hitting_time(subject, [3]).values, times.values)
        assert np.array_equal(kolmo.stationary(subject).p, kolmo.stationary(rates).p)
    chain = model.chain()
    for subject in (model, chain):
        assert np.array_equal(kolmo.hitting_time(subject, "full").values, times.values)
        assert kolmo.absorption(subject, {"full": "full"}).p.tolist() == [[1.0]] * 4
        length = kolmo.expected_reward(subject, "length", until="full")
        assert np.array_equal(length.values, kolmo.expected_reward(rates, range(4), 3).values)
        assert np.array_equal(kolmo.visits(subject, until="full").values, kolmo.visits(rates, until=3).values)
    with pytest.raises(ValueError, match="invalid target 'empty': expected the labels .*full"):
        kolmo.hitting_time(model, "empty")
    with pytest.raises(ValueError, match="invalid reward 'cost': expected the rewards length"):
        kolmo.expected_reward(model, "cost", 3)
    with pytest.raises(ValueError, match="kind is 'rates', but .* is a chain, which has rates: leave kind out"):
        kolmo.stationary(model, kind="rates")


CHAIN = np.array([[0, 0.5, 0.5, 0], [0.5, 0, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1]])
CLOSED = np.array([[0, 1.0, 0], [1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: kolmo.stationary(CHAIN), r"has 2 closed classes, .* \[2, 3\] .*expected one closed class; give an"),
        (lambda: kolmo.absorption(CHAIN, {}), "no target set given: expected at least one"),
        (lambda: kolmo.absorption(CHAIN, [2]), r"invalid targets \[2\]: expected a mapping"),
        (lambda: kolmo.absorption(CHAIN, {1: 2}), "invalid targets 1: expected names"),
        (lambda: kolmo.absorption(CHAIN, {"a": []}), "target set 'a' is empty: expected at least one state"),
        (lambda: kolmo.absorption(CHAIN, {"a": 4}), r"targets\['a'\] is 4; give a number from 0 to 3"),
        (lambda: kolmo.absorption(CHAIN, {"a": [0, 0, 1, 1]}), r"targets\['a'\] has the number 0 twice; .*mask"),
        (lambda: kolmo.absorption(CHAIN, {"a": "down"}), "there are no labels"),
        (lambda: kolmo.absorption(CHAIN, {"a": 2, "b": [2, 3]}), "state 2 is in the target sets 'a' and 'b': expected disj"),
        (lambda: kolmo.absorption(CLOSED, {"a": 2}), "no other state reaches target set 'a' first: expected a path into"),
        (lambda: kolmo.hitting_time(CLOSED, 2), "no other state reaches the target set: expected a path into it; check"),
        (lambda: kolmo.hitting_time(CLOSED, []), "the target set is empty: expected at least one state"),
        (lambda: kolmo.expected_reward(CHAIN, [1, 0, 0, 2.5]), "total reward is infinite: state 3, .* the reward 2.5: exp"),
        (lambda: kolmo.expected_reward(CHAIN, [1, np.inf, 0, 0]), r"\[1\] is inf: expected a finite number"),
        (lambda: kolmo.expected_reward(CHAIN, [1, 2], 3), r"reward has the shape \(2,\); give 4 numbers"),
        (lambda: kolmo.visits(CHAIN, [0.5, 0, 0, 0]), "sums to 0.5: expected 1"),
        (lambda: kolmo.visits(CHAIN, 4), "p0 is 4; give a number from 0 to 3"),
        (lambda: kolmo.stationary(CLOSED, kind="generator"), "Q has no negative diagonal entry: expected .*; leave `kind`"),
        (lambda: kolmo.stationary(CLOSED - np.eye(3), kind="rates"), "expected kind 'generator', not 'rates'; leave"),
        (lambda: kolmo.stationary(0.9 * CLOSED, kind="stochastic"), "row 0 of Q, counted from 0, sums to 0.9: expected 1"),
        (lambda: kolmo.stationary(CLOSED, kind="discrete"), "invalid kind 'discrete': expected 'generator'"),
        (lambda: kolmo.stationary(-CLOSED), "expected a rate ≥ 0"),
        (lambda: kolmo.hitting_time(CHAIN, 3, epsilon=0), "invalid `epsilon` 0: expected a number between 0 and 1"),
    ],
)
def test_invalid_input_is_named(call, told):
    with pytest.raises(kolmo.InvalidInput, match=told) as raised:
        call()
    assert isinstance(raised.value, ValueError)


def test_trivial_chains_have_exact_answers():
    assert kolmo.stationary([[0.0]]).p.tolist() == [1] and kolmo.stationary([[1.0]], kind="stochastic").kind == "stochastic"
    everywhere = kolmo.absorption(CLOSED, {"a": [0, 1], "b": 2})
    assert everywhere.p.tolist() == [[1, 0], [1, 0], [0, 1]] and not everywhere.bound.any()
    assert kolmo.hitting_time(CLOSED, [0, 1, 2]).values.tolist() == [0, 0, 0]
    assert kolmo.visits(CHAIN, 2).values.tolist() == [0, 0, 0, 0]
    assert kolmo.visits(CHAIN, 2, until=3).values.tolist() == [0, 0, np.inf, 0]
    never = kolmo.hitting_time(CHAIN, 3)
    assert never.values.tolist() == [np.inf, np.inf, np.inf, 0] and "infinite from 3" in repr(never)
    assert "none reached from 1" in repr(kolmo.absorption(CHAIN, {"a": 3}))
    assert kolmo.stationary(CHAIN, 0).p.round(12).tolist() == [0, 0, round(2 / 3, 12), round(1 / 3, 12)]


def test_a_missed_epsilon_is_a_status_with_the_best_bound():
    rates = random_rates("dense", np.random.default_rng(0))
    for call in (
        lambda: kolmo.stationary(rates, epsilon=1e-30),
        lambda: kolmo.absorption(rates, {"a": 0, "b": 9}, epsilon=1e-30),
        lambda: kolmo.hitting_time(rates, 0, epsilon=1e-30),
        lambda: kolmo.visits(rates, 3, until=0, epsilon=1e-30),
    ):
        with pytest.warns(kolmo.BoundWarning, match="more than epsilon allows"):
            r = call()
        assert r.status == "not_met" and 0 < np.max(r.bound) < 1e-9


def test_a_time_limit_ends_an_iteration_with_the_best_bound():
    n = 20_000
    start, step = np.arange(n), np.array([1, 611, 1999])
    row, column = np.repeat(start, 3), (start[:, None] + step).ravel() % n
    rates = sp.csr_array((np.tile(step, n).astype(float), (row, column)), shape=(n, n))
    whole = kolmo.hitting_time(rates, 0)
    assert whole.met and whole.limit is None and 0 < whole.residual < 1
    with pytest.warns(kolmo.BoundWarning, match="limited by the time limit"):
        early = kolmo.hitting_time(rates, 0, time_limit=1e-6)
    assert not early.met and early.limit == "the time limit" and np.max(early.bound) > 1e-9
    assert np.all(abs(early.values - whole.values) <= early.bound + whole.bound)
    assert kolmo.stationary([[0, 1.0], [1.0, 0]]).residual is None
    with pytest.raises(kolmo.InvalidInput, match="time_limit is 0"):
        kolmo.hitting_time(rates, 0, time_limit=0)


def test_masks_lists_labels_and_formats_give_the_same_bits():
    q = queue(50)
    expected = kolmo.hitting_time(q, 49)
    mask = np.arange(50) == 49
    for form in (q.tocsr(), q.tocsc(), q.toarray()):
        for target in (49, [49], np.array([49], dtype=np.uint8), mask):
            assert np.array_equal(kolmo.hitting_time(form, target).values, expected.values)
    with pytest.warns(kolmo.ConversionWarning, match="Q is coo") as told:
        kolmo.hitting_time(q.tocoo(), 49)
    assert told[0].filename == __file__
