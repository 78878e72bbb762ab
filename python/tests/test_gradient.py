"""Derivatives of probabilities: `transient(gradient=…)`, kolmo.torch and kolmo.jax."""

import importlib
import re

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import ROOT, skip

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
        above, below = (queue(0.8 + s * h * (k == 0), 1.5 + s * h * (k == 1), epsilon=1e-13) for s in (1, -1))
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


def optional(name):
    """Imports a library and kolmo's module for it, or skips the test."""
    try:
        return importlib.import_module(name), importlib.import_module(f"kolmo.{name}")
    except ImportError:
        return skip(name, f"{name} is not installed")


ROWS, COLUMNS = [2, 0, 1, 1, 2], [1, 1, 0, 2, 0]
RATES = np.array([0.7, 1.2, 0.4, 2.0, 0.0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gradients_in_torch():
    torch, of_torch = optional("torch")
    logits = torch.tensor([0.1, 0.5, -0.3], dtype=torch.float64, requires_grad=True)
    # A rate of 0 has a derivative, too, but no difference on its other side.
    rates = torch.tensor(RATES[:4], requires_grad=True)

    def solve(rates, logits):
        start = torch.softmax(logits, 0)
        return of_torch.transient(rates, ROWS[:4], COLUMNS[:4], start, [0.3, 2.0], epsilon=1e-12)

    assert torch.autograd.gradcheck(solve, (rates, logits))
    forward = kolmo.transient(
        sp.csr_array((RATES, (ROWS, COLUMNS)), shape=(3, 3)),
        0,
        2.0,
        gradient={"zero": sp.csr_array(([1.0], ([2], [0])), shape=(3, 3))},
    )
    rates, start = torch.tensor(RATES, requires_grad=True), torch.tensor([1.0, 0.0, 0.0])
    of_torch.transient(rates, ROWS, COLUMNS, start, 2.0)[0, 1].backward()
    assert abs(float(rates.grad[4]) - forward.gradient["zero"][0, 1]) < 1e-8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_fit_of_the_page_of_gradients():
    optional("torch")
    known = {}
    (block,) = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs/gradients.md").read_text(), re.DOTALL | re.MULTILINE)
    exec(compile(block, "gradients.md", "exec"), known)

    rate = float(known["log_rate"].detach().exp())
    p = kolmo.transient(rate * np.eye(5, k=1) + np.eye(5, k=-1), 0, 10.0).p
    assert abs(p[0, 4] - 0.1) < 1e-4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gradients_in_jax():
    jax, of_jax = optional("jax")
    jax.config.update("jax_enable_x64", True)
    from jax.test_util import check_grads

    def solve(rates, logits):
        return of_jax.transient(rates, ROWS[:4], COLUMNS[:4], jax.nn.softmax(logits), [0.3, 2.0], epsilon=1e-12)

    arguments = (jax.numpy.asarray(RATES[:4]), jax.numpy.asarray([0.1, 0.5, -0.3]))
    check_grads(solve, arguments, order=1, modes=["rev"], eps=1e-5)
    value = jax.jit(jax.grad(lambda *given: solve(*given)[1, 2]))(*arguments)
    np.testing.assert_allclose(value, jax.grad(lambda *given: solve(*given)[1, 2])(*arguments))


@pytest.mark.parametrize(
    "rows, columns, rates, told",
    [
        ([0, 0], [1, 1], [1, 1], "the rate 0 -> 1 occurs twice"),
        ([0, 1], [1, 1], [1, 1], "state 1 has a rate to itself"),
        ([0], [1, 0], [1, 1], "give equal lengths"),
        ([0, 1], [1, 2], [1, 1], r"columns\[1\] is 2; give states from 0 to 1"),
        ([0.5], [1], [1], "give a list of whole numbers"),
    ],
)
def test_invalid_transitions_are_named(rows, columns, rates, told):
    from kolmo._gradient import Pattern

    with pytest.raises(kolmo.InvalidInput, match=told):
        Pattern(rows, columns, 2, 1.0, 1e-9).probabilities(rates, [1.0, 0.0])
