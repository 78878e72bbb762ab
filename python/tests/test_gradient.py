"""Derivatives of probabilities: `transient(gradient=…)`, kolmo.torch and kolmo.jax."""

import importlib
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import ROOT, cuda_or_skip, skip

import kolmo

TIMES = [0.0, 0.5, 4.0]
# A queue with arrivals and services, whose rates are scaled by lambda and mu.
ARRIVALS, SERVICES = np.eye(5, k=1), np.eye(5, k=-1) * np.arange(5)[:, None]
REWARDS = {"jobs": np.arange(5.0)}


def queue(arrival=0.8, service=1.5, **options):
    return kolmo.transient(arrival * ARRIVALS + service * SERVICES, 1, TIMES, rewards=REWARDS, **options)


def test_derivatives_agree_with_central_differences(device):
    r = queue(gradient={"lambda": ARRIVALS, "mu": sp.csr_array(SERVICES)}, device=device)
    plain = queue()

    assert r.met and r.device == device and r.p.shape == r.gradient["mu"].shape == (3, 5)
    assert np.abs(r.p - plain.p).sum(axis=1).max() <= (r.bound + plain.bound).max()
    np.testing.assert_allclose(r.accumulated["jobs"], plain.accumulated["jobs"], atol=1e-8)
    h = 1e-4
    for k, name in enumerate(["lambda", "mu"]):
        above, below = (queue(0.8 + s * h * (k == 0), 1.5 + s * h * (k == 1), epsilon=1e-12) for s in (1, -1))
        # Third derivatives are below 100 here, so a difference has an error of 100 h² / 6.
        for got, of in [
            (r.gradient[name], lambda r: r.p),
            (r.gradient_rewards[name]["jobs"], lambda r: r.rewards["jobs"]),
            (r.gradient_accumulated[name]["jobs"], lambda r: r.accumulated["jobs"]),
        ]:
            np.testing.assert_allclose(got, (of(above) - of(below)) / (2 * h), atol=2e-7)
        assert 0 < r.gradient_bound[name].max() < 1e-9


def test_absorbing_states_do_not_depend_on_parameters():
    r = queue(gradient={"mu": SERVICES}, absorbing=[0, 1, 2, 3, 4])

    assert np.all(r.gradient["mu"] == 0)


def test_closed_form_of_two_states():
    a, b, t = 0.3, 0.7, 2.0
    r = kolmo.transient([[-a, a], [b, -b]], 0, t, gradient={"a": [[-1, 1], [0, 0]]})

    s, decay = a + b, np.exp(-(a + b) * t)
    exact = b / s**2 * (1 - decay) + a / s * t * decay
    assert abs(r.gradient["a"][0, 1] - exact) <= r.gradient_bound["a"][0] + 1e-15


def test_derivatives_by_initial_probabilities():
    # State 2 leads to the absorbing state 1, or to states 3 and 4, with probability 1/2 each.
    Q = np.array([[-1, 1, 0, 0, 0], [0] * 5, [0.5, 0, -1, 0.5, 0], [0, 0, 0, -2, 2], [0, 0, 0, 3, -3.0]])
    p0, change = [0.3, 0, 0.7, 0, 0], [1, 0, -1, 0, 0]
    r = kolmo.transient(Q, p0, TIMES, gradient={"b": np.zeros((5, 5))}, gradient_p0={"a": change})
    for k, t in enumerate(TIMES):
        exact = kolmo.expm_multiply(t * Q.T, np.array(change, dtype=float), epsilon=1e-13)
        assert np.abs(r.gradient["a"][k] - exact).sum() <= r.gradient_bound["a"][k] + 1e-12
    assert list(r.gradient) == ["b", "a"] and not r.gradient["b"].any()

    for begin in (p0, 0):
        s = kolmo.stationary(Q, begin, gradient_p0={"a": change})
        exact = np.array([0, 0.5, 0, -0.3, -0.2])
        assert np.abs(s.gradient["a"] - exact).sum() <= s.gradient_bound["a"] + 1e-16
        assert s.gradient_bound["a"] < 1e-13
    # A single closed class.
    s = kolmo.stationary(Q[3:, 3:], 0, gradient={"b": [[-1, 1], [0, 0]]}, gradient_p0={"a": [1, -1]})
    assert np.array_equal(s.gradient["a"], [0, 0]) and np.allclose(s.gradient["b"], [-0.12, 0.12])

    with pytest.raises(kolmo.InvalidInput, match="without p0"):
        kolmo.stationary(Q, gradient_p0={"a": change})
    with pytest.raises(kolmo.InvalidInput, match=r"gradient_p0\['a'\] has the shape"):
        kolmo.transient(Q, p0, 1, gradient_p0={"a": change[1:]})


def test_rates_of_zero_take_no_steps_of_their_own():
    stored = sp.csr_array((np.zeros(2), [1, 0], [0, 1, 2]), shape=(2, 2))
    r = kolmo.transient(stored, 0, 1e9, gradient={"b": [[0, 1], [0, 0]]})
    assert r.terms < 100 and abs(r.gradient["b"][0, 1] - 1e9) <= r.gradient_bound["b"][0]


@pytest.mark.parametrize(
    "options, told",
    [
        ({"gradient": {"mu": np.eye(5, k=2)}}, r"gradient\['mu'\]\[0, 2\] is 1, but Q stores no rate there"),
        ({"gradient": {"mu": np.eye(4, k=1)}}, r"gradient\['mu'\] has 4 rows; give 5"),
        ({"gradient": {"mu": np.where(ARRIVALS > 0, np.nan, 0)}}, "by 'mu' is NaN: expected a finite number"),
        ({"gradient": {"mu": ARRIVALS + np.eye(5)}}, "row 0 of the derivatives by 'mu' sums to 2e0: expected 0"),
        ({"gradient": [ARRIVALS]}, "a mapping of names to matrices dQ"),
        ({"gradient": {"mu": ARRIVALS}, "precision": "f32"}, "gradient is computed in f64, not in f32"),
    ],
)
def test_invalid_derivatives_are_named(options, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        queue(**options)


def test_times_without_derivatives_are_named():
    with pytest.raises(kolmo.InvalidInput, match="the time inf is not supported for derivatives"):
        kolmo.transient(ARRIVALS, 0, np.inf, gradient={"lambda": ARRIVALS})
    with pytest.raises(kolmo.InvalidInput, match="gradient is not supported for phases"):
        kolmo.transient([(1, ARRIVALS), (2, SERVICES)], 0, 1, gradient={"lambda": ARRIVALS})


@pytest.mark.filterwarnings("ignore::kolmo.BoundWarning")
@pytest.mark.parametrize("k, arrival, service", [(1, 1, 3), (40, 3, 4), (300, 7, 5)])
def test_queues_in_the_long_run_have_their_closed_forms(k, arrival, service):
    up, down = (sp.diags_array(np.ones(k), offsets=offset).tocsr() for offset in (1, -1))
    Q, load = sp.csr_array(arrival * up + service * down), Fraction(arrival, service)
    s = kolmo.stationary(Q, gradient={"lambda": up, "mu": down})
    a = kolmo.absorption(Q, {"empty": 0, "full": k}, gradient={"lambda": up})
    t = kolmo.hitting_time(Q, k, gradient={"lambda": up})

    def ratio(of, by, n):
        """Rounds of(i) / sum(of), or of(i) / of(n), and its derivative by the load."""
        all, moved = [of(i) for i in range(k + 1)], [by(i) for i in range(k + 1)]
        whole, more = (sum(all), sum(moved)) if n is None else (all[n], moved[n])
        return [[float(v / whole), float((d * whole - v * more) / whole**2)] for v, d in zip(all, moved, strict=True)]

    def slope(i):
        return i * load ** (i - 1) if i else Fraction(0)

    exact = np.array(ratio(lambda i: load**i, slope, None))[:, 1]
    for name, change in (("lambda", 1 / service), ("mu", -arrival / service**2)):
        assert s.met and np.abs(s.gradient[name] - change * exact).sum() <= s.gradient_bound[name] + 1e-14 * k
        assert s.gradient[name].shape == s.p.shape and s.gradient_bound[name] < 1e-9
    # A gambler who wins at the rate lambda, and loses at the rate mu.
    exact = np.array(ratio(lambda i: sum(load**-j for j in range(i)), lambda i: sum(-j * load ** (-j - 1) for j in range(i)), k))
    error, bound = np.abs(a.gradient["lambda"][:, 1] - exact[:, 1] / service), a.gradient_bound["lambda"][:, 1]
    assert a.met and a.gradient["lambda"].shape == a.p.shape and np.all(error <= bound + 1e-14)
    assert bound[[0, k]].max() == 0 and bound.max() < 1e-9
    # Up from i in the mean time sum_j load^-j / lambda for j = 0 .. i.
    steps = [sum(Fraction(-(j + 1)) / arrival**2 * load**-j for j in range(i + 1)) for i in range(k)]
    exact = np.array([float(sum(steps[i:])) for i in range(k + 1)])
    # Errors of long times are multiplied by these times.
    assert t.met == (k != 40) and np.all(np.abs(t.gradient["lambda"] - exact) <= t.gradient_bound["lambda"] + 1e-13 * np.abs(exact))


@pytest.mark.filterwarnings("ignore::kolmo.BoundWarning")
def test_long_runs_agree_with_central_differences():
    # A grid that is too wide for a short elimination.
    n = 110
    right, left = (sp.diags_array(np.ones(n - 1), offsets=offset) for offset in (1, -1))
    eye = sp.eye_array(n)
    ways = {"right": (eye, right), "left": (eye, left), "up": (right, eye), "down": (left, eye)}
    ways = {name: sp.csr_array(sp.kron(*factors)) for name, factors in ways.items()}

    def matrix(up):
        return sp.csr_array(ways["right"] + 1.1 * ways["left"] + up * ways["up"] + 1.25 * ways["down"])

    reward, h = np.arange(n * n) % 7 - 2.0, 1e-3
    for call, field in [
        (lambda Q, **more: kolmo.stationary(Q, **more), "p"),
        (lambda Q, **more: kolmo.absorption(Q, {"one": [0, 1], "two": [n * n - 1]}, **more), "p"),
        (lambda Q, **more: kolmo.expected_reward(Q, reward, [0], **more), "values"),
    ]:
        r, above, below = call(matrix(1.2), gradient={"up": ways["up"]}), call(matrix(1.2 + h)), call(matrix(1.2 - h))
        got, size = r.gradient["up"], np.abs(r.gradient["up"]).max()
        # The difference has an error of h² / 6 times the third derivative, and of the values.
        np.testing.assert_allclose(got, (getattr(above, field) - getattr(below, field)) / (2 * h), atol=1e-3 * size)
        assert np.max(r.gradient_bound["up"]) <= 1e-5 * max(size, 1)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_batch_has_the_derivatives_of_single_runs(form):
    n = 6
    pattern = (sp.csr_array(np.eye(n, k=1) + np.eye(n, k=-1))).asformat(form)
    rng = np.random.default_rng(3)
    data = rng.random((4, pattern.nnz)) + 0.1
    data[2, 5] = -1
    by = {"each": rng.random(data.shape), "all": rng.random(pattern.nnz)}
    reward, told = np.arange(n) / n, []
    options = {"epsilon": 1e-11, "rewards": {"mean": reward}}
    r = kolmo.transient_batch(pattern, data, 3, [0.5, 4.0], gradient=by, progress=lambda *done: told.append(done), **options)
    assert told[-1] == (4, 4) and list(r.errors) == [2] and "-1" in r.errors[2] and list(r.met) == [True, True, False, True]
    assert all(r.gradient[name].shape == (4, 2, n) and r.gradient_bound[name].shape == (4, 2) for name in by)
    for k in range(4):
        if k == 2:
            assert np.isnan(r.p[k]).all() and np.isnan(r.gradient["all"][k]).all() and np.isnan(r.gradient_bound["each"][k]).all()
            continue
        made = lambda values: type(pattern)((values, pattern.indices, pattern.indptr), (n, n))  # noqa: E731
        changes = {"each": made(by["each"][k]), "all": made(by["all"])}
        one = kolmo.transient(made(data[k]), 3, [0.5, 4.0], gradient=changes, device="cpu", **options)
        assert np.array_equal(r.p[k], one.p) and np.array_equal(r.rewards["mean"][k], one.rewards["mean"])
        for name in by:
            assert np.array_equal(r.gradient[name][k], one.gradient[name])
            assert np.array_equal(r.gradient_bound[name][k], one.gradient_bound[name])
            assert np.array_equal(r.gradient_rewards[name]["mean"][k], one.gradient_rewards[name]["mean"])
            assert np.array_equal(r.gradient_accumulated[name]["mean"][k], one.gradient_accumulated[name]["mean"])
    with pytest.raises(ZeroDivisionError):
        kolmo.transient_batch(pattern, data, 3, 1.0, gradient=by, progress=lambda *_: 1 // 0)
    for gradient, said in (
        ({"a": np.ones(3)}, r"gradient\['a'\] has the shape \(3,\); give 10 derivatives for all matrices"),
        ({"a": np.full(10, np.nan)}, "by 'a' is NaN"),
        ([np.ones(10)], "a mapping of names"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=said):
            kolmo.transient_batch(pattern, data, 3, 1.0, gradient=gradient)


def test_long_runs_of_stochastic_matrices_and_of_several_ends():
    p, up, down = 0.3, np.eye(4, k=1), np.eye(4, k=-1)
    P = p * up + (1 - p) * down
    P[[0, 3]] = np.eye(4)[[0, 3]]
    win = np.vstack([np.zeros(4), (up - down)[1:3], np.zeros(4)])
    a = kolmo.absorption(P, {"rich": 3}, kind="stochastic", gradient={"p": win})
    t = kolmo.hitting_time(P, [0, 3], gradient={"p": win})
    # From 1 coin: rich with probability p² / (1 − p (1 − p)).
    q = 1 - p * (1 - p)
    exact = (2 * p * q - p**2 * (2 * p - 1)) / q**2
    assert abs(a.gradient["p"][1, 0] - exact) <= a.gradient_bound["p"][1, 0] + 1e-15
    s = kolmo.stationary(P, 1, gradient={"p": win})
    assert np.abs(s.gradient["p"] - [-exact, 0, 0, exact]).sum() <= s.gradient_bound["p"] + 1e-15
    with pytest.raises(kolmo.InvalidInput, match="the chain has 2 closed classes.*expected one closed class; give"):
        kolmo.stationary(P, gradient={"p": win})
    # States that are not reached have an infinite bound, but no share.
    far, change = np.zeros((5, 5)), np.zeros((5, 5))
    far[0, 1], far[0, 2], far[3, 1], far[3, 2] = 1, 2, 1e-300, 1e-300
    change[0, 1], change[3, 1] = 1, 1e10
    near = kolmo.stationary(far, 0, kind="rates", gradient={"a": change})
    assert near.met and abs(near.gradient["a"][1] - 2 / 9) <= near.gradient_bound["a"] + 1e-16
    many = np.zeros((70, 70))
    many[0, 1:] = 1
    with pytest.raises(kolmo.InvalidInput, match="reaches 69 closed classes: expected at most 64 for derivatives"):
        kolmo.stationary(many, 0, kind="rates", gradient={"a": many})
    # From 1 coin the game takes (1 + p) / q steps.
    exact = (q - (1 + p) * (2 * p - 1)) / q**2
    assert abs(t.gradient["p"][1] - exact) <= t.gradient_bound["p"][1] + 1e-15
    endless = kolmo.hitting_time(P, 3, gradient={"p": win})
    assert np.isnan(endless.gradient["p"][:3]).all() and endless.gradient["p"][3] == 0


@pytest.mark.parametrize(
    "gradient, told",
    [
        ({"mu": np.eye(5, k=2)}, "rate 0 -> 2 by 'mu' is 1, but the rate is 0: expected a positive rate"),
        ({"mu": np.eye(4, k=1)}, "by 'mu' are a matrix of 4 rows and 4 columns: expected 5 and 5"),
        ({"mu": np.where(ARRIVALS > 0, np.nan, 0)}, "by 'mu' is NaN: expected a finite number"),
        ({"mu": ARRIVALS + np.eye(5)}, "row 0 of the derivatives by 'mu' sums to 2e0: expected 0"),
        ([ARRIVALS], "a mapping of names to matrices dQ"),
    ],
)
def test_invalid_derivatives_of_long_runs_are_named(gradient, told):
    for call in (
        lambda: kolmo.stationary(ARRIVALS + SERVICES, gradient=gradient),
        lambda: kolmo.absorption(ARRIVALS + SERVICES, {"full": 4}, gradient=gradient),
        lambda: kolmo.hitting_time(ARRIVALS + SERVICES, 4, gradient=gradient),
    ):
        with pytest.raises(kolmo.InvalidInput, match=told):
            call()


def test_a_bound_that_cannot_be_kept_is_a_status():
    with pytest.warns(kolmo.BoundWarning, match="more than epsilon allows"):
        s = kolmo.stationary(ARRIVALS + SERVICES, epsilon=1e-16, gradient={"mu": SERVICES})
    assert not s.met and 1e-16 < s.gradient_bound["mu"] < 1e-12


def rates(n, *entries):
    Q = np.zeros((n, n))
    for i, j, rate in entries:
        Q[i, j] = rate
    return Q


SLOW, FAST, LARGE = [(0, 1, 1e-35)], [(3, 2, 1e307)], [(0, 1, 1e308), (1, 0, 1e308)]


@pytest.mark.filterwarnings("ignore::kolmo.BoundWarning")
@pytest.mark.parametrize("changes", [{"b": SLOW + FAST}, {"a": FAST, "b": SLOW}, {"a": LARGE, "b": SLOW}])
def test_bounds_count_errors_that_underflow(changes):
    Q = rates(4, (0, 1, 0.3), (1, 0, 0.7), (1, 2, 1e-10), (2, 3, 1), (3, 2, 1))
    gradient = {name: rates(4, *entries) for name, entries in changes.items()}
    t = kolmo.hitting_time(Q, 2, gradient=gradient)
    # The time from 0 is (1 + (0.7 + c) / b) / c with the rate c from 1 to 2.
    exact = -(0.7 + 1e-10) / (0.3**2 * 1e-10) * 1e-35
    assert abs(t.gradient["b"][0] - exact) <= t.gradient_bound["b"][0] + 1e-15 * abs(exact)
    # An overflow affects the bounds of its parameter alone.
    assert np.isfinite(t.gradient_bound["b"]).all()
    assert changes.get("a") is not LARGE or t.gradient_bound["a"][0] == np.inf


def test_a_distribution_without_bounds_of_its_derivatives_is_that_without_gradient():
    Q = rates(4, (0, 1, 1), (1, 0, 2), (2, 3, 1), (3, 2, 2), (1, 2, 1e-250), (2, 1, 1e-250))
    with pytest.warns(kolmo.BoundWarning):
        s = kolmo.stationary(Q, gradient={"up": np.triu(Q)})
    assert s.bound < 1e-12 and np.abs(s.p - [4 / 9, 2 / 9, 2 / 9, 1 / 9]).sum() <= s.bound + 1e-15
    assert not s.met and s.gradient_bound["up"] == np.inf


@pytest.mark.parametrize("gradient", [False, True])
def test_a_time_limit_leaves_out_a_long_elimination(gradient):
    i, n = np.arange(1500), 1500
    ways = [sp.csr_array((np.full(n, 1.0 + k), (i, (i + k) % n)), shape=(n, n)) for k in (1, 7, 211, 599)]
    by = {"gradient": {"a": ways[0]}} if gradient else {}
    with pytest.warns(kolmo.BoundWarning):
        s = kolmo.stationary(sp.csr_array(sum(ways)), time_limit=1e-6, **by)
    # No distribution has a larger error.
    assert s.bound == 2


def test_models_have_derivatives(tmp_path):
    path = tmp_path / "m.sm"
    path.write_text(
        "ctmc const double lambda; module m s : [0..1]; [] s=0 -> lambda : (s'=1); [] s=1 -> 3 : (s'=0); endmodule"
    )
    model = kolmo.Model(path, **{"lambda": 1.0})
    found = model.check("S=? [ s=1 ]", "P=? [ F<=2 s=1 ]", "T=? [ F s=1 ]", gradient="lambda")
    for answer, exact in zip(found, [3 / 16, 2 * np.exp(-2), -1], strict=True):
        assert abs(answer.gradient["lambda"] - exact) <= answer.gradient_bound["lambda"] + 1e-15
        assert answer.gradient_bound["lambda"] < 1e-9
    assert model.check("S=? [ s=1 ]").answers[0].gradient == {}
    for options, told in [
        ({"gradient": "mu"}, "there is no constant 'mu'"),
        ({"gradient": ["lambda", "lambda"]}, "different names of constants"),
        ({"gradient": "lambda", "truncate": 1e-10}, "gradient is not supported with truncate"),
    ]:
        with pytest.raises(kolmo.InvalidInput, match=told):
            model.check("P=? [ F<=2 s=1 ]", **options)
    with pytest.raises(kolmo.InvalidInput, match="derivatives exist for the number of one operator"):
        model.check("P>0.5 [ F<=2 s=1 ]", gradient="lambda")


def optional(name):
    """Imports a library and kolmo's module for it, or skips the test."""
    try:
        return importlib.import_module(name), importlib.import_module(f"kolmo.{name}")
    except ImportError:
        return skip(name, f"{name} is not installed")


ROWS, COLUMNS = [2, 0, 1, 1, 2], [1, 1, 0, 2, 0]
RATES = np.array([0.7, 1.2, 0.4, 2.0, 0.0])


# Releases of both libraries warn of their own parts.
lenient = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def solver(transient, **options):
    """The function of rates, initial probabilities and times of the small chain."""
    return lambda rates, p0, times: transient(rates, ROWS, COLUMNS, p0, times, **options)


def reference(expm, stack):
    """The same function by a library's exponential of a matrix, which has its own derivatives."""

    def probabilities(rates, p0, times):
        a, b, c, d, e = rates
        zero = 0 * a
        Q = stack([stack([-b, b, zero]), stack([c, -c - d, d]), stack([e, a, -a - e])])
        return stack([p0 @ expm(Q * t) for t in times])

    return probabilities


START, AT = np.array([0.5, 0.2, 0.3]), np.array([0.3, 2.0])


@lenient
def test_gradients_in_torch():
    torch, of_torch = optional("torch")
    logits = torch.tensor([0.1, 0.5, -0.3], dtype=torch.float64, requires_grad=True)
    times = torch.tensor(AT, requires_grad=True)
    # A rate of 0 has a derivative, too, but no difference on its other side.
    rates = torch.tensor(RATES[:4], requires_grad=True)

    def solve(rates, logits, times):
        start = torch.softmax(logits, 0)
        return of_torch.transient(rates, ROWS[:4], COLUMNS[:4], start, times, epsilon=1e-12)

    assert torch.autograd.gradcheck(solve, (rates, logits, times))
    forward = kolmo.transient(
        sp.csr_array((RATES, (ROWS, COLUMNS)), shape=(3, 3)),
        0,
        2.0,
        gradient={"zero": sp.csr_array(([1.0], ([2], [0])), shape=(3, 3))},
    )
    rates, start = torch.tensor(RATES, requires_grad=True), torch.tensor([1.0, 0.0, 0.0])
    of_torch.transient(rates, ROWS, COLUMNS, start, 2.0)[0, 1].backward()
    assert abs(float(rates.grad[4]) - forward.gradient["zero"][0, 1]) < 1e-8


@lenient
def test_functions_of_torch_func():
    torch, of_torch = optional("torch")
    solve = solver(of_torch.transient, epsilon=1e-12)
    exact = reference(torch.linalg.matrix_exp, torch.stack)
    rates, p0, times = (torch.tensor(array) for array in (RATES, START, AT))
    close = {"rtol": 0, "atol": 5e-12}
    torch.testing.assert_close(solve(rates, p0, times), exact(rates, p0, times), **close)
    torch.testing.assert_close(
        torch.func.grad(lambda *given: solve(*given)[1, 2], (0, 1, 2))(rates, p0, times),
        torch.func.grad(lambda *given: exact(*given)[1, 2], (0, 1, 2))(rates, p0, times),
        **close,
    )
    jacobians = torch.func.jacrev(solve, (0, 1, 2))(rates, p0, times)
    for got, want in zip(jacobians, torch.func.jacrev(exact, (0, 1, 2))(rates, p0, times), strict=True):
        torch.testing.assert_close(got, want, **close)
    by_loop = torch.autograd.functional.jacobian(solve, (rates, p0, times))
    assert all(torch.equal(got, want) for got, want in zip(jacobians, by_loop, strict=True))

    # Batches of each argument, of several, on any axis, and nested, have the bits of a loop.
    many = torch.stack([rates, 2 * rates, rates + 1, 0 * rates])
    starts, ends = torch.eye(3, dtype=torch.float64), torch.stack([times, times + 0.5, 3 * times])
    vmap, grad = torch.vmap, torch.func.grad
    assert torch.equal(vmap(solve, (0, None, None))(many, p0, times), torch.stack([solve(r, p0, times) for r in many]))
    assert torch.equal(vmap(solve, (1, None, None))(many.T, p0, times), vmap(solve, (0, None, None))(many, p0, times))
    assert torch.equal(vmap(solve, (None, 0, None))(rates, starts, times), torch.stack([solve(rates, s, times) for s in starts]))
    assert torch.equal(vmap(solve)(many[:3], starts, ends), torch.stack([solve(*given) for given in zip(many, starts, ends)]))
    loop = torch.stack([torch.stack([solve(r, s, times) for s in starts]) for r in many])
    inner = vmap(solve, (None, 0, None))
    assert torch.equal(vmap(inner, (0, None, None))(many, starts, times), loop)
    inner, outer = vmap(solve, (0, None, None)), vmap(solve, (None, 0, None))
    assert torch.equal(vmap(inner, (None, 0, None))(many, starts, times).transpose(0, 1), loop)
    assert torch.equal(vmap(outer, (0, None, 0))(many[:3], starts, ends)[2, 1], solve(many[2], starts[1], ends[2]))

    def loss(rates, p0, times):
        return solve(rates, p0, times)[1].square().sum()

    for in_dims, given in (((0, None, 0), (many[:3], p0, ends)), ((None, 0, None), (rates, starts, times))):
        single = [[t if d is None else t[k] for d, t in zip(in_dims, given)] for k in range(3)]
        by_loop = [grad(loss, (0, 1, 2))(*arguments) for arguments in single]
        mapped = vmap(grad(loss, (0, 1, 2)), in_dims)(*given)
        assert all(torch.equal(got, torch.stack(want)) for got, want in zip(mapped, zip(*by_loop), strict=True))
        total = grad(lambda *given, d=in_dims: vmap(loss, d)(*given).sum(), (0, 1, 2))(*given)
        for got, parts, d in zip(total, mapped, in_dims, strict=True):
            torch.testing.assert_close(got, parts.sum(0) if d is None else parts, **close)
    jacobian = vmap(torch.func.jacrev(solve), (0, None, None))(many, p0, times)
    assert torch.equal(jacobian[1], torch.func.jacrev(solve)(many[1], p0, times))


@lenient
def test_batches_of_large_chains_have_the_bits_of_a_loop_in_torch():
    torch, of_torch = optional("torch")
    n, i = 1100, np.arange(1099)
    many = torch.rand(3, 2 * n - 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p0 = torch.eye(n, dtype=torch.float64)[7]

    def solve(rates):
        return of_torch.transient(rates, np.concatenate([i, i + 1]), np.concatenate([i + 1, i]), p0, [1.0, 20.0])

    assert torch.equal(torch.vmap(solve)(many), torch.stack([solve(rates) for rates in many]))


@lenient
@pytest.mark.parametrize("count", [1, 3])
def test_chains_without_transitions_have_derivatives_in_torch(count):
    torch, of_torch = optional("torch")
    start = torch.tensor([[0.25, 0.75]] * count, dtype=torch.float64, requires_grad=True)
    rates = torch.zeros((count, 0), dtype=torch.float64, requires_grad=True)

    p = torch.vmap(lambda rates, start: of_torch.transient(rates, [], [], start, 2.0))(rates, start)
    p[:, 0, 1].sum().backward()

    assert rates.grad.shape == (count, 0)
    # The Poisson sum is truncated within the default epsilon.
    np.testing.assert_allclose(start.grad, [[0.0, 1.0]] * count, rtol=0, atol=1e-9)


@lenient
def test_second_derivatives_and_forward_mode_are_errors_in_torch():
    torch, of_torch = optional("torch")
    rates, p0, times = (torch.tensor(array) for array in (RATES, START, AT))
    solve = solver(of_torch.transient)

    def linear(rates):
        return solve(rates, p0, times)[1, 2]

    def curved(rates):
        return solve(rates, p0, times)[1, 2] ** 2

    def by_start(p0):
        return solve(rates, p0, times)[1, 2] ** 2

    def by_time(times):
        return solve(rates, p0, times)[1, 2]

    def twice(of):
        x = rates.clone().requires_grad_()
        (first,) = torch.autograd.grad(of(x), x, create_graph=True)
        torch.autograd.grad(first.sum(), x)

    functional, func, second = torch.autograd.functional, torch.func, "second derivatives .* are not supported: expected"
    for of in (linear, curved):
        for way in (
            lambda: functional.hessian(of, rates),  # noqa: B023
            lambda: functional.hessian(of, rates, strict=True),  # noqa: B023
            lambda: functional.hessian(of, rates, vectorize=True),  # noqa: B023
            lambda: functional.hvp(of, rates, rates),  # noqa: B023
            lambda: functional.vhp(of, rates, rates),  # noqa: B023
            lambda: twice(of),  # noqa: B023
            lambda: torch.autograd.gradgradcheck(of, ((rates + 0.1).requires_grad_(),)),  # noqa: B023
            lambda: func.jacrev(func.grad(of))(rates),  # noqa: B023
            lambda: func.grad(lambda x: func.grad(of)(x).sum())(rates),  # noqa: B023
            lambda: torch.vmap(func.jacrev(func.grad(of)))(torch.stack([rates, rates])),  # noqa: B023
        ):
            with pytest.raises(kolmo.InvalidInput, match=second):
                way()
    for of, at in ((by_start, p0), (by_time, times)):
        with pytest.raises(kolmo.InvalidInput, match=second):
            functional.hessian(of, at)
    for way in (
        lambda: func.hessian(linear)(rates),
        lambda: func.jacfwd(linear)(rates),
        lambda: func.jvp(linear, (rates,), (rates,)),
        lambda: functional.jacobian(linear, rates, strategy="forward-mode", vectorize=True),
    ):
        with pytest.raises(kolmo.InvalidInput, match="forward mode .* use reverse mode, such as grad or jacrev"):
            way()
    # A graph of the first derivative is no second derivative.
    x = rates.clone().requires_grad_()
    (first,) = torch.autograd.grad(linear(x), x, create_graph=True)
    assert torch.equal(first, func.grad(linear)(rates))


@lenient
def test_types_in_torch():
    torch, of_torch = optional("torch")
    rates, p0, times = (torch.tensor(array) for array in (RATES, START, AT))
    solve = solver(of_torch.transient)
    double, single = torch.float64, torch.float32
    exact = solve(rates, p0, times)
    for a, b, kind in ((double, double, double), (single, double, double), (double, single, double), (single, single, single)):
        got = solve(rates.to(a), p0.to(b), times)
        assert got.dtype == kind and torch.allclose(got.double(), exact, rtol=0, atol=1e-6)
    half = solve(rates.bfloat16(), torch.tensor([1.0, 0, 0]).bfloat16(), 1)
    assert half.dtype == torch.bfloat16
    # Lists and arrays become float64, also times of whole numbers.
    assert torch.equal(solve(RATES.tolist(), START, AT.tolist()), exact)
    assert torch.equal(solve(rates, p0, torch.tensor([1, 2])), solve(rates, p0, [1, 2]))
    x = rates.float().requires_grad_()
    solve(x, p0, times)[1, 2].backward()
    assert x.grad.dtype == single
    for given, told in (
        ((rates.long(), p0, times), r"rates holds torch.int64: expected floating-point numbers; give rates.double\(\)"),
        ((rates, torch.tensor([1, 0, 0]), times), r"p0 holds torch.int64: expected floating-point numbers"),
        ((rates > 1, p0, times), "rates holds torch.bool"),
        ((rates + 0j, p0, times), "rates holds torch.complex128; give rates.real"),
        ((RATES + 0j, p0, times), "rates holds complex128; give rates.real"),
        ((rates, p0 + 0j, times), "p0 holds torch.complex128"),
        ((rates, p0, times + 0j), "times holds torch.complex128"),
        ((list(rates), p0, times), r"rates is a list of tensors; give torch.stack\(rates\)"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=told):
            solve(*given)


@lenient
def test_results_and_derivatives_are_on_the_device_of_their_tensors():
    torch = cuda_or_skip("torch")
    _, of_torch = optional("torch")
    given = [torch.tensor(array, device="cuda:0", requires_grad=True) for array in (RATES, START, AT)]
    p = solver(of_torch.transient)(*given)
    p[1, 2].backward()
    host = [torch.tensor(array, requires_grad=True) for array in (RATES, START, AT)]
    want = solver(of_torch.transient)(*host)
    want[1, 2].backward()
    assert p.device == given[0].device and torch.equal(p.cpu(), want)
    assert all(one.grad.device == one.device and torch.equal(one.grad.cpu(), other.grad) for one, other in zip(given, host))


INVALID = [
    (RATES[:4], START, AT, r"rates has the shape \(4,\); give 5 numbers, one for each transition"),
    (RATES[None], START, AT, r"rates has the shape \(1, 5\); give 5 numbers.* use vmap for several chains"),
    (RATES - [0, 0, 0, 3, 0], START, AT, r"rates\[3\], from state 1 -> 2, is -1: expected a finite rate"),
    (RATES * [1, np.nan, 1, 1, 1], START, AT, r"rates\[1\], from state 0 -> 1, is nan: expected a finite rate"),
    (RATES + [0, 0, 0, 0, np.inf], START, AT, r"rates\[4\], from state 2 -> 0, is inf: expected a finite rate"),
    (RATES, START[:, None], AT, r"p0 has the shape \(3, 1\); give the initial probability of each state.*order of arguments"),
    (RATES, np.array(1.0), AT, r"p0 has the shape \(\); give the initial probability of each state"),
    (RATES, START[:2], AT, r"rows\[0\] is 2; give states from 0 to 1"),
    (RATES, 2 * START, AT, r"sums to 2: expected 1 \(divide it by 2\)"),
    (RATES, START * [1, np.nan, 1], AT, "gives state 1 the probability NaN"),
    (RATES, START, AT[None], r"times has the shape \(1, 2\); give one time or a list"),
    (RATES, START, -AT, "invalid time -0.3"),
]


@lenient
@pytest.mark.parametrize("rates, p0, times, told", INVALID)
@pytest.mark.parametrize("library", ["torch", "jax"])
def test_invalid_numbers_are_named(library, rates, p0, times, told):
    module, of = optional(library)
    if library == "jax":
        module.config.update("jax_enable_x64", True)
    array = module.tensor if library == "torch" else module.numpy.asarray
    with pytest.raises(kolmo.InvalidInput, match=told):
        solver(of.transient)(array(rates), array(p0), array(times))


@lenient
def test_a_batch_names_its_invalid_rate():
    torch, of_torch = optional("torch")
    many = torch.tensor(np.stack([RATES, RATES - 1]))
    with pytest.raises(kolmo.InvalidInput, match=r"rates\[1, 0\], from state 2 -> 1, is -0.3"):
        torch.vmap(lambda rates: of_torch.transient(rates, ROWS, COLUMNS, START, 1.0))(many)


@lenient
def test_a_bound_above_epsilon_is_a_warning_in_torch():
    torch, of_torch = optional("torch")
    with pytest.warns(kolmo.BoundWarning, match="the bound of probabilities is .*, more than epsilon 1e-16"):
        p = of_torch.transient(torch.tensor(RATES, requires_grad=True), ROWS, COLUMNS, START, 20.0, epsilon=1e-16)
    with pytest.warns(kolmo.BoundWarning, match="the bound of derivatives is .*, more than epsilon 1e-16 times their scale"):
        p[0, 0].backward()


@lenient
def test_the_examples_of_the_page_of_gradients(capsys):
    optional("torch")
    known = {}
    fit, bounds = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs/gradients.md").read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(fit, "gradients.md", "exec"), known)

    rate = float(known["log_rate"].detach().exp())
    p = kolmo.transient(rate * np.eye(5, k=1) + np.eye(5, k=-1), 0, 10.0).p
    assert abs(p[0, 4] - 0.1) < 1e-4
    exec(compile(bounds, "gradients.md", "exec"), known)
    assert capsys.readouterr().out.endswith(" True\n")


def derivatives_of_lines():
    """A pure birth process with two rates, its weights, and exact probabilities and derivatives at time 1.

    From state 0, p_2(t) = 1 − (b e^(−at) − a e^(−bt)) / (b − a).
    """
    a, b = Fraction(7, 8), Fraction(13, 8)
    u, v = (sum((-x) ** k / Fraction(math.factorial(k)) for k in range(40)) for x in (a, b))
    p = [u, a * (u - v) / (b - a), 1 - (b * u - a * v) / (b - a)]
    by = [b * ((b - a) * u - (u - v)) / (b - a) ** 2, a * ((u - v) - (b - a) * v) / (b - a) ** 2]
    return np.array([0.875, 1.625]), p, by, [p[2], 1 - v, Fraction(1)]


@lenient
@pytest.mark.parametrize("epsilon", [1e-4, 1e-9])
def test_bounds_of_torch_hold(epsilon):
    torch, of_torch = optional("torch")
    values, exact, by_rates, by_start = derivatives_of_lines()
    double = {"dtype": torch.float64, "requires_grad": True}
    rates, start, error = torch.tensor(values, **double), torch.eye(3, dtype=torch.float64)[0].requires_grad_(), torch.zeros(2, **double)

    def solve(rates, start, error):
        return of_torch.transient(rates, [0, 1], [1, 2], start, [1.0, 1.0], epsilon=epsilon, bound=True, gradient_bound=error)

    p, bound = solve(rates, start, error)
    assert bound.shape == (2,) and not bound.requires_grad and 0 < bound.max() <= epsilon
    assert sum(abs(Fraction(float(x)) - y) for x, y in zip(p[1].detach(), exact, strict=True)) <= Fraction(float(bound[1]))
    p[1, 2].backward(retain_graph=True)
    once = error.grad.clone()
    assert 0 < once.min() and once.max() <= epsilon
    for got, want, bound_of in ((rates.grad, by_rates, once[0]), (start.grad, by_start, once[1])):
        assert max(abs(Fraction(float(x)) - y) for x, y in zip(got, want, strict=True)) <= Fraction(float(bound_of))
    # Weights scale bounds, and calls add up.
    (-3 * p[1, 2]).backward()
    torch.testing.assert_close(error.grad, 4 * once, rtol=0.1, atol=0)
    # One bound for each element of a Jacobian matrix, and for each chain of a batch.
    jacobian = torch.func.jacrev(lambda *given: solve(*given)[0], 2)(rates, start, error)
    assert jacobian.shape == (2, 3, 2) and torch.equal(jacobian[1, 2], once)
    many = torch.stack([rates, 2 * rates]).detach()
    p, bound = torch.vmap(solve, (0, None, None))(many, start, error)
    assert p.shape == (2, 2, 3) and torch.equal(bound, torch.stack([solve(one, start, error)[1] for one in many]))
    each = torch.vmap(torch.func.grad(lambda *given: solve(*given)[0][1, 2], 2), (0, None, None))(many, start, error)
    assert each.shape == (2, 2) and torch.equal(each[0], once)
    with pytest.raises(kolmo.InvalidInput, match=r"gradient_bound has the shape \(3,\); give two zeros"):
        solve(rates, start, torch.zeros(3))


@lenient
@pytest.mark.parametrize("x64", [True, False])
def test_bounds_of_jax_hold(x64):
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", x64)
    values, exact, by_rates, by_start = derivatives_of_lines()
    rates, start, error = map(jax.numpy.asarray, (values, np.eye(3)[0], np.zeros(2)))

    def solve(rates, start, error, times=(1.0, 1.0)):
        return of_jax.transient(rates, [0, 1], [1, 2], start, times, epsilon=1e-4, bound=True, gradient_bound=error)

    # Numbers in single precision are rounded after the computation.
    rounding = Fraction(0 if x64 else 2**-22)
    for call in (solve, jax.jit(solve)):
        p, bound = call(rates, start, error)
        assert bound.shape == (2,) and 0 < bound.max() <= 1e-4
        assert sum(abs(Fraction(float(x)) - y) for x, y in zip(p[1], exact, strict=True)) <= Fraction(float(bound[1])) + rounding
    grad = jax.grad(lambda *given: call(*given)[0][1, 2], (0, 1, 2))
    call = solve
    of_rates, of_start, once = grad(rates, start, error)
    assert 0 < once.min() and once.max() <= 1e-4
    for got, want, bound_of in ((of_rates, by_rates, once[0]), (of_start, by_start, once[1])):
        assert max(abs(Fraction(float(x)) - y) for x, y in zip(got, want, strict=True)) <= Fraction(float(bound_of)) + rounding
    np.testing.assert_array_equal(jax.jit(grad)(rates, start, error)[2], once)
    # Times that are differentiated take the same path, and bounds have no derivatives.
    moved = jax.jit(jax.grad(lambda error, times: solve(rates, start, error, times)[0][1, 2]))(error, jax.numpy.ones(2))
    np.testing.assert_array_equal(moved, once)
    assert not jax.grad(lambda rates: solve(rates, start, error)[1].sum())(rates).any()
    each = jax.vmap(jax.jacrev(lambda *given: solve(*given)[0], 2), (0, None, None))(jax.numpy.stack([rates, 2 * rates]), start, error)
    np.testing.assert_array_equal(each[0, 1, 2], once)
    with pytest.raises(kolmo.InvalidInput, match=r"gradient_bound has the shape \(3,\); give two zeros"):
        solve(rates, start, np.zeros(3))


@lenient
def test_derivatives_are_computed_on_the_device(device):
    torch, of_torch = optional("torch")
    found = []
    for place in ("cpu", device):
        rates = torch.tensor(RATES, dtype=torch.float64, requires_grad=True)
        p = of_torch.transient(rates, ROWS, COLUMNS, torch.eye(3, dtype=torch.float64)[0], AT, device=place)
        (p * torch.arange(6.0).reshape(2, 3)).sum().backward()
        found.append(rates.grad)
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)


@lenient
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_probabilities_are_computed_on_the_device(name, device):
    library, module = optional(name)
    if name == "jax":
        library.config.update("jax_enable_x64", True)
    p = module.transient(RATES, ROWS, COLUMNS, np.eye(3)[0], AT, device=device)
    chain = sp.csr_array((RATES, (ROWS, COLUMNS)), shape=(3, 3))
    np.testing.assert_array_equal(np.asarray(p), kolmo.transient(chain, 0, AT, device=device).p)
    with pytest.raises(kolmo.InvalidInput, match="device"):
        module.transient(RATES, ROWS, COLUMNS, np.eye(3)[0], AT, device=0)


@lenient
def test_gradients_in_jax():
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", True)
    from jax.test_util import check_grads

    def solve(rates, logits, times):
        return of_jax.transient(rates, ROWS[:4], COLUMNS[:4], jax.nn.softmax(logits), times, epsilon=1e-12)

    arguments = (jax.numpy.asarray(RATES[:4]), jax.numpy.asarray([0.1, 0.5, -0.3]), jax.numpy.asarray(AT))
    check_grads(solve, arguments, order=1, modes=["rev"], eps=1e-5)
    by = jax.grad(lambda *given: solve(*given)[1, 2], argnums=(0, 1, 2))
    for got, want in zip(jax.jit(by)(*arguments), by(*arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@lenient
def test_transformations_of_jax():
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", True)
    solve = solver(of_jax.transient, epsilon=1e-12)
    exact = reference(jax.scipy.linalg.expm, jax.numpy.stack)
    given = rates, p0, times = [jax.numpy.asarray(array) for array in (RATES, START, AT)]
    every = (0, 1, 2)
    expected = jax.jit(jax.jacrev(exact, every))(*given)
    for jacobian in (jax.jacrev(solve, every), jax.jit(jax.jacrev(solve, every))):
        for got, want in zip(jacobian(*given), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=5e-12)
    many, starts, ends = jax.numpy.stack([rates, 2 * rates, 0 * rates]), jax.numpy.eye(3), jax.numpy.stack([times, times + 0.5, 3 * times])
    single = [solve(*each) for each in zip(many, starts, ends)]
    np.testing.assert_array_equal(jax.vmap(solve)(many, starts, ends), jax.numpy.stack(single))
    nested = jax.vmap(jax.vmap(solve, (None, 0, None)), (0, None, 0))(many, starts, ends)
    np.testing.assert_array_equal(nested[1, 2], solve(many[1], starts[2], ends[1]))
    mapped = jax.jit(jax.vmap(jax.jacrev(solve, every), (0, None, 0)))(many, p0, ends)
    for got, want in zip(mapped, jax.jacrev(solve, every)(many[1], p0, ends[1]), strict=True):
        np.testing.assert_array_equal(got[1], want)

    # Both libraries call the same solver.
    torch, of_torch = optional("torch")
    jacobian = torch.func.jacrev(solver(of_torch.transient, epsilon=1e-12))(*map(torch.tensor, (RATES, START, AT)))
    np.testing.assert_array_equal(jacobian, jax.jacrev(solve)(rates, p0, AT))


@lenient
def test_second_derivatives_and_forward_mode_are_errors_in_jax():
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", True)
    rates = jax.numpy.asarray(RATES)

    def linear(rates):
        return of_jax.transient(rates, ROWS, COLUMNS, START, AT)[1, 2]

    def by_time(times):
        return of_jax.transient(RATES, ROWS, COLUMNS, START, times)[1, 2]

    for way in (
        lambda: jax.hessian(linear)(rates),
        lambda: jax.hessian(lambda rates: linear(rates) ** 2)(rates),
        lambda: jax.jit(jax.hessian(linear))(rates),
        lambda: jax.jacrev(jax.grad(linear))(rates),
        lambda: jax.jit(jax.jacrev(jax.grad(linear)))(rates),
        lambda: jax.hessian(by_time)(jax.numpy.asarray(AT)),
    ):
        with pytest.raises(kolmo.InvalidInput, match="second derivatives .* are not supported: expected"):
            way()
    for way in (lambda: jax.jacfwd(linear)(rates), lambda: jax.jvp(linear, (rates,), (rates,)), lambda: jax.jit(jax.jacfwd(linear))(rates)):
        with pytest.raises(kolmo.InvalidInput, match="forward mode .* use reverse mode, such as grad or jacrev"):
            way()


@lenient
def test_types_in_jax():
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", True)
    solve, double, single = solver(of_jax.transient), np.float64, np.float32
    exact = kolmo.transient(sp.csr_array((RATES, (ROWS, COLUMNS)), shape=(3, 3)), START, AT, device="cpu").p
    for a, b, kind in ((double, double, double), (single, double, double), (double, single, double), (single, single, single)):
        got = solve(RATES.astype(a), START.astype(b), AT)
        assert got.dtype == kind
        np.testing.assert_allclose(got, exact, rtol=0, atol=1e-6)
    whole = solve(np.array([1, 2, 3, 4, 5]), np.array([1, 0, 0]), 1)
    assert whole.dtype == double and np.array_equal(whole, solve(np.arange(1.0, 6), [1.0, 0, 0], 1))
    by_rates = jax.grad(lambda rates: solve(rates, np.array([1, 0, 0]), 1)[0, 2])
    assert by_rates(jax.numpy.asarray(RATES)).dtype == double
    for given, told in (
        ((RATES + 0j, START, AT), "rates holds complex128; give rates.real"),
        ((RATES, START + 0j, AT), "p0 holds complex128; give p0.real"),
        ((RATES, START, AT + 0j), "times holds complex128; give times.real"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=told):
            solve(*given)
    # Errors of numbers that are not known while JAX traces have the same message.
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"rates\[3\], from state 1 -> 2, is -1: expected a finite rate"):
        jax.block_until_ready(jax.jit(solve)(RATES - [0, 0, 0, 3, 0], START, AT))


class TestChainsOnDevices:
    """Calls with known transitions, whose matrices are kept."""

    n = 600
    rows = np.tile(np.arange(n), 2)
    columns = np.concatenate([(np.arange(n) + 1) % n, (np.arange(n) + 7) % n])
    rates = np.random.default_rng(1).random(2 * n)
    p0, times = np.eye(n)[3], np.array([0.5, 20.0])
    values = np.random.default_rng(2).random((2, n))

    def solve(self, rates, device):
        from kolmo._gradient import Pattern

        pattern = Pattern(self.rows, self.columns, self.n, 1e-9, device)
        p, bound = pattern.probabilities(rates, self.p0, self.times)
        return p, bound, *pattern.pulled_back(self.values, p, rates, self.p0, self.times, by_times=True)

    @pytest.fixture(autouse=True)
    def forget(self, monkeypatch):
        from kolmo import _gradient

        monkeypatch.setattr(_gradient, "_newest", [])

    def test_have_the_bits_of_first_calls(self, device, monkeypatch):
        from kolmo import _gradient
        from kolmo._gradient import Transitions

        monkeypatch.setattr(_gradient, "_keeps_matrices", lambda *_: True)
        for factor in (1.0, 1.0, 0.25, 1.0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Transitions, "chain", lambda *_: None)
                expected = self.solve(factor * self.rates, device)
            for got, want in zip(self.solve(factor * self.rates, device), expected, strict=True):
                np.testing.assert_array_equal(got, want)

    def test_take_arrays_of_other_libraries(self, monkeypatch):
        from kolmo import _device

        class There:
            ndim, dtype = 1, np.dtype(float)

            def __init__(self, array):
                self.array = array

            def __dlpack_device__(self):
                return 1, 0

            def __dlpack__(self, **asked):
                return self.array.__dlpack__()

            def __array__(self, **asked):
                return self.array

        expected = self.solve(self.rates, "cpu")
        monkeypatch.setitem(_device.KINDS, 1, "cpu")
        monkeypatch.setattr(_device, "way_into", lambda _: np.from_dlpack)
        for got, want in zip(self.solve(There(self.rates), "auto"), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        wrong = np.where(np.arange(2 * self.n) == 5, np.nan, self.rates)
        with pytest.raises(kolmo.InvalidInput, match=r"`rates`\[5\], from state 5 -> 6, is NaN"):
            self.solve(There(wrong), "auto")
        # Without 50,000 rates the default is the host, as for derivatives that are all 0.
        for got, want in zip(self.solve(There(self.rates), None), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        monkeypatch.setattr(TestChainsOnDevices, "values", 0 * self.values)
        assert not any(np.any(array) for array in self.solve(There(self.rates), "auto")[2:])

    def test_are_dropped_without_memory(self, monkeypatch):
        from kolmo._gradient import Transitions

        class Full:
            def transient(self, *_):
                raise kolmo.OutOfMemory("a test")

            adjoint = transient

        expected = self.solve(self.rates, "cpu")
        calls = []

        def chain(self, spec, there):
            calls.append(spec)
            return None if spec in self._chains else (None, Full())

        monkeypatch.setattr(Transitions, "chain", chain)
        monkeypatch.setattr(kolmo._gradient, "_keeps_matrices", lambda *_: True)
        for got, want in zip(self.solve(self.rates, "cpu"), expected, strict=True):
            np.testing.assert_array_equal(got, want)
        assert calls == ["cpu", "cpu"]

    @pytest.mark.parametrize("name", ["torch", "jax"])
    def test_keep_cuda_arrays_there(self, name):
        library = cuda_or_skip(name)
        of_library = importlib.import_module(f"kolmo.{name}")
        expected = self.solve(self.rates, "cpu")
        given = self.rows, self.columns, self.p0, self.times
        if name == "torch":
            rates = library.tensor(self.rates, device="cuda", requires_grad=True)
            start, times, values = (library.tensor(array, device="cuda") for array in (self.p0, self.times, self.values))
            p = of_library.transient(rates, self.rows, self.columns, start, times, device="auto")
            (p * values).sum().backward()
            p, by_rates = p.detach(), rates.grad
            assert p.is_cuda and by_rates.is_cuda
        else:
            library.config.update("jax_enable_x64", True)
            rates = library.numpy.asarray(self.rates)
            p = of_library.transient(rates, *given, device="auto")
            by_rates = library.grad(lambda rates: (of_library.transient(rates, *given, device="auto") * self.values).sum())(rates)
            assert p.devices() == by_rates.devices() == rates.devices()
        np.testing.assert_array_equal(np.asarray(p.cpu() if name == "torch" else p), expected[0])
        np.testing.assert_array_equal(np.asarray(by_rates.cpu() if name == "torch" else by_rates), expected[2])


@pytest.mark.parametrize(
    "rows, columns, told",
    [
        ([0, 0], [1, 1], "the rate 0 -> 1 occurs twice"),
        ([0, 1], [1, 1], "state 1 has a rate to itself"),
        ([0], [1, 0], "give equal lengths"),
        ([0, 1], [1, 2], r"columns\[1\] is 2; give states from 0 to 1"),
        ([0.5], [1], "give a list of whole numbers"),
    ],
)
def test_invalid_transitions_are_named(rows, columns, told):
    from kolmo._gradient import Pattern

    with pytest.raises(kolmo.InvalidInput, match=told):
        Pattern(rows, columns, 2, 1e-9, "cpu")
