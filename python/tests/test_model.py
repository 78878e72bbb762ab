import json
import math
import subprocess

import numpy as np
import pytest
from scipy.linalg import expm

import kolmo

QUEUE = """ctmc
const int N;
const double mu = 3;
const bool open;
module queue
    q : [0..N];
    [] q < N & open -> 2 : (q'=q+1);
    [serve] q > 0 -> mu : (q'=q-1);
endmodule
label "full" = q = N;
rewards "served" [serve] true : 1; endrewards
"""


@pytest.fixture
def queue(tmp_path):
    path = tmp_path / "queue.sm"
    path.write_text(QUEUE)
    return path


def test_answers_are_those_of_the_command(queue, command, tmp_path):
    properties = ['const double T; P=? [ F<=T "full" ]', 'R{"served"}=? [ C<=10 ]', 'S>=0.1 [ "full" ]', 'P=? [ X q=1 ]']
    checked = kolmo.Model(queue, N=4, open=True).check(*properties, T=[1, 2], device="cpu", epsilon=1e-10)
    line = [command, "check", str(queue), *properties, "--const", "N=4,open=true,T=1:2", "--device", "cpu"]
    line += ["--epsilon", "1e-10", "--quiet", "--report", str(tmp_path / "r.json")]
    subprocess.run(line, check=True, capture_output=True)
    told = json.loads((tmp_path / "r.json").read_text())
    assert (checked.sweeps, checked.terms, checked.states) == (told["sweeps"], told["terms"], 5)
    assert len(checked) == len(told["properties"]) == 8 and checked.met and checked.device == "cpu"
    for answer, row in zip(checked, told["properties"], strict=True):
        assert answer.property == row["property"] and answer.constants == row["constants"]
        assert (answer.number, answer.bound) == (row["value"], row["bound"])
        assert answer.value == (row["value"] if row["truth"] is None else row["truth"] == "true")
    assert len(checked.bound) == 8 and checked.seconds > 0


def test_one_answer_is_a_value_and_a_bound(queue):
    checked = kolmo.Model(queue, N=4, open=True).check('S=? [ "full" ]')
    r = 2 / 3
    assert abs(checked.value - r**4 * (1 - r) / (1 - r**5)) <= checked.bound < 1e-8
    ones = [kolmo.Model(queue, N=[3, 4, 5], open=True).check('S=? [ "full" ]', N=n).value for n in (3, 4)]
    many = kolmo.Model(queue, open=True).check('S=? [ "full" ]', N=range(3, 5))
    assert many.value == ones and [answer.states for answer in many] == [4, 5]


def test_the_chain_has_names_labels_and_rewards(queue):
    model = kolmo.Model(queue, N=np.int64(4), open=np.True_)
    assert model.undefined == {"N": "int", "open": "bool"}
    chain = model.chain()
    assert chain is model.chain() and chain.n == 5 and chain.state_name(4) == "(q=4)"
    assert chain.labels["full"].tolist() == [4] and chain.rewards["served"].tolist() == [0, 3, 3, 3, 3]
    reached = model.transient([1.0, 2.0], absorbing="full", epsilon=1e-12)
    same = model.check('const double T; P=? [ F<=T "full" ]', T=[1, 2], epsilon=1e-12)
    np.testing.assert_allclose(reached.p[:, 4], same.value, atol=1e-12)


@pytest.mark.parametrize(
    ("constants", "properties", "told"),
    [
        ({}, ["P=? [ F<=1 q=4 ]"], "constants without a value: int N"),
        ({"N": 4, "open": True, "M": 1}, ["P=? [ F<=1 q=4 ]"], "M"),
        ({"N": 4, "open": True}, ['P=? [ F<=1 "ful" ]'], "full"),
        ({"N": 4, "open": True}, ["P=? [ F<=1"], "property:1"),
        ({"N": 4, "open": True}, [], "no property"),
        ({"N": 4.5, "open": True}, ["P=? [ F<=1 q=4 ]"], "N"),
        ({"N": "4", "open": True}, ["P=? [ F<=1 q=4 ]"], "the constant N is '4'"),
        ({"N": [], "open": True}, ["P=? [ F<=1 q=4 ]"], "N has no value"),
    ],
)
def test_what_is_wrong_is_refused(queue, constants, properties, told):
    with pytest.raises(kolmo.InvalidInput, match=told) as raised:
        kolmo.Model(queue, **constants).check(*properties)
    assert "--const" not in str(raised.value)


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(kolmo.FileError):
        kolmo.Model(tmp_path / "none.sm")
    (tmp_path / "bad.sm").write_text("ctmc\nmodule m\n x : [0..1];\n [] x=0 -> : (x'=1);\nendmodule\n")
    with pytest.raises(kolmo.InvalidInput, match="bad.sm:4"):
        kolmo.Model(tmp_path / "bad.sm")
    with pytest.raises(kolmo.InvalidInput, match=r"kolmo\.read"):
        kolmo.Model("model.drn")


RATES = """ctmc
const double lambda; const double mu; const int N = 5;
module queue
    q : [0..N];
    [] q < N -> lambda : (q'=q+1);
    [] q > 0 -> mu : (q'=q-1);
endmodule
rewards q > 0 : mu; endrewards
"""


@pytest.fixture
def rates(tmp_path):
    path = tmp_path / "rates.sm"
    path.write_text(RATES)
    return path


def full(lam, mu, n=5):
    """Long-run probability of a full M/M/1/N queue."""
    r = lam / mu
    return r**n / sum(r**k for k in range(n + 1))


def test_a_sweep_has_an_axis_per_constant(rates):
    model = kolmo.Model(rates)
    lam, mu, T = np.linspace(0.5, 2.0, 4), [1.0, 3.0], [1, 2, 5]
    swept = model.sweep(lambda_=lam, mu=mu).check("S=? [ q=N ]", device="cpu")
    assert swept.value.shape == swept.bound.shape == (4, 2) and swept.met and swept.explorations == 1
    assert list(swept.axes) == ["lambda", "mu"] and not swept.failed and "shape (4, 2)" in repr(swept)
    exact = full(lam[:, None], np.array(mu))
    assert np.all(np.abs(swept.value - exact) <= swept.bound + 4e-16)
    # Constants of properties have axes, too, in the order of the call.
    asked = ["const double T; P=? [ F<=T q=N ]", "P>=0.5 [ F<=T q>0 ]", "R=? [ C<=T ]"]
    asked[1:] = ["const double T; " + text for text in asked[1:]]
    swept = model.sweep(T=T, lambda_=lam, mu=mu).check(*asked, device="cpu")
    assert swept.value.shape == (3, 4, 2, 3)
    for index in np.ndindex(3, 4, 2):
        constants = {"T": T[index[0]], "lambda": lam[index[1]], "mu": mu[index[2]]}
        alone = kolmo.Model(rates).check(*asked, device="cpu", **constants)
        np.testing.assert_array_equal(swept.value[index], np.array(alone.value, float))
        np.testing.assert_array_equal(swept.bound[index][[0, 2]], alone.bound[[0, 2]])


def test_samples_of_a_sweep_are_taken_together(rates):
    lam, mu = np.array([[1.0, 2.0], [0.5, 4.0]]), np.array([[3.0, 1.0], [2.0, 2.0]])
    swept = kolmo.Model(rates, mu=9).sweep(lambda_=lam, mu=mu, zip=True).check("S=? [ q=N ]")
    assert swept.value.shape == (2, 2) and np.all(np.abs(swept.value - full(lam, mu)) <= swept.bound + 4e-16)
    swept = kolmo.Model(rates).sweep(lambda_=lam[0], mu=2.0, zip=True).check("S=? [ q=N ]", "P=? [ F<=1 q=1 ]")
    np.testing.assert_allclose(swept.value[:, 1], -np.expm1(-lam[0]), atol=1e-8)


def test_a_value_with_an_error_loses_no_other(rates):
    with pytest.warns(kolmo.BoundWarning, match="1 of 4 values"):
        swept = kolmo.Model(rates).sweep(lambda_=[1.0, -1.0, 0.0, 2.0], mu=1).check("P=? [ F<=1 q=1 ]")
    np.testing.assert_allclose(swept.value, [-np.expm1(-1), np.nan, 0, -np.expm1(-2)], atol=1e-8)
    assert np.isinf(swept.bound[1]) and "the rate is -1" in swept.failed[1,] and len(swept.failed) == 1


@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ({"lambda_": [], "mu": 1}, "lambda has no value"),
        ({"lambda_": [1.0, 2.0], "mu": [1.0, 2.0, 3.0], "zip": True}, r"equal shapes: lambda \(2,\), mu \(3,\)"),
        ({"lambda_": [[1.0, 2.0]], "mu": 1}, "zip=True"),
        ({"lambda_": [-1.0, -2.0], "mu": 1}, "the rate is -1"),
        ({"lambda_": [1.0, 2.0]}, "double mu"),
        ({"lambda_": [1.0, 2.0], "mu": 1, "nu": 2}, "nu"),
        ({"lambda_": ["1"], "mu": 1}, "the constant lambda"),
    ],
)
def test_a_wrong_sweep_is_refused(rates, constants, told):
    with pytest.raises(kolmo.InvalidInput, match=told):
        kolmo.Model(rates).sweep(**constants).check("S=? [ q=N ]")


DAYS = kolmo.Schedule({0: 1.0, 3: 4, 7: 0.5}, period=10)
SERVED = kolmo.Schedule([(0, 2.0), (5, 1.0)])


def dense(times, absorbing=lambda t: (), p=np.eye(6)[0]):
    """Probabilities and expected services by products of dense exponentials."""
    services = {0.0: 0.0}
    rows = {0.0: p}
    ends = sorted({0.0, 3.0, 5.0, 7.0, 10.0, 13.0, 17.0, *times})
    for start, end in zip(ends, ends[1:]):
        lam = [1.0, 4.0, 0.5][sum(start % 10 >= t for t in (3, 7))]
        mu = 2.0 if start < 5 else 1.0
        q = np.diag([lam] * 5, 1) + np.diag([mu] * 5, -1)
        q[list(absorbing(start))] = 0
        q -= np.diag(q.sum(axis=1))
        # The last row of the enlarged matrix integrates the services.
        large = np.zeros((7, 7))
        large[:6, :6], large[1:6, 6] = q, mu
        both = np.append(rows[start], 0.0) @ expm(large * (end - start))
        rows[end], services[end] = both[:6], services[start] + both[6]
    return np.array([rows[t] for t in times]), np.array([services[t] for t in times])


def test_constants_that_change_with_time_follow_dense_exponentials(rates):
    model = kolmo.Model(rates, mu=SERVED, **{"lambda": DAYS})
    times = [0.0, 2.0, 7.0, 12.0, 20.0]
    r = model.transient(times)
    p, services = dense(times)
    assert r.met and np.all(np.abs(r.p - p).sum(axis=1) <= r.bound + 1e-13)
    np.testing.assert_allclose(r.accumulated["1"], services, atol=1e-7)
    there = p[3]
    both = dense([2.0, 12.0], lambda t: (5,) if t < 2 else (3, 5))[0][1]
    left = dense([2.0, 12.0], lambda t: (3, 4, 5))[0]
    early = dense([4.0, 20.0], lambda t: (1,) if t < 4 else (1, 2))[0]
    for asked, wanted in (
        ("P=? [ F=12 q=2 ]", there[2]),
        ("P=? [ q<5 U[2,12] q=3 ]", both[3]),
        ("P=? [ q<3 U[2,12] q>=3 ]", left[1, 3:].sum() - left[0, 3:].sum()),
        ("P=? [ q!=1 U[4,20] (q=1|q=2) ]", early[1, 1:3].sum() - early[0, 1]),
        ("P=? [ G[7,12] q>0 ]", 1 - dense([12.0], lambda t: () if t < 7 else (0,))[0][0, 0]),
        ("R=? [ C<=12 ]", services[3]),
        ("R=? [ I=12 ]", 1 - there[0]),
    ):
        (answer,) = model.check(asked, device="cpu")
        assert abs(answer.value - wanted) <= answer.bound + 1e-13 and answer.bound < 1e-6, (asked, wanted)


def test_a_sweep_takes_constants_that_change_with_time(rates):
    asked = ["const double T; P=? [ q<5 U[1,T] q=3 ]", "R=? [ C<=6 ]"]
    swept = kolmo.Model(rates, **{"lambda": DAYS}).sweep(T=[12], mu=[2.0, 0.0, 3.0]).check(*asked, device="cpu")
    assert swept.value.shape == (1, 3, 2) and list(swept.axes) == ["T", "mu"]
    # Without services the pattern of transitions differs.
    assert swept.met and swept.explorations == 2
    for k, mu in enumerate([2.0, 0.0, 3.0]):
        alone = kolmo.Model(rates, mu=mu).check(*asked, device="cpu", T=12, **{"lambda": DAYS})
        np.testing.assert_array_equal(swept.value[0, k], alone.value)
        np.testing.assert_array_equal(swept.bound[0, k], alone.bound)
        assert alone.answers[0].constants == {"mu": mu, "T": 12}
    # The last phase alone does not reach any other state.
    halted = kolmo.Model(rates, mu=1.0, **{"lambda": kolmo.Schedule([(0, 1.0), (5, 0.0)])})
    found = halted.check("P=? [ F<=9 q=1 ]", device="cpu")
    assert abs(found.value + np.expm1(-5)) <= found.bound + 1e-15
    r = halted.transient([5.0, 9.0], device="cpu")
    serving = np.diag([1.0] * 5, -1) - np.diag([0.0] + [1.0] * 5)
    both = serving + np.diag([1.0] * 5, 1) - np.diag([1.0] * 5 + [0.0])
    exact = np.eye(6)[0] @ expm(5 * both)
    exact = np.array([exact, exact @ expm(4 * serving)])
    assert np.all(np.abs(r.p - exact).sum(axis=1) <= r.bound + 1e-13)
    with pytest.warns(kolmo.BoundWarning, match="1 of 2 values"):
        swept = kolmo.Model(rates).sweep(lambda_=DAYS, mu=[1.0, -1.0], zip=True).check("P=? [ F<=1 q=1 ]")
    assert abs(swept.value[0] + np.expm1(-1)) < 1e-8 and "the rate is -1" in swept.failed[1,]


@pytest.mark.parametrize(
    ("values", "period", "told"),
    [
        ([], None, "'mu' has the times .*: expected a value from time 0 on"),
        ([(1, 2.0)], None, "expected a value from time 0 on"),
        ([(0, 1.0), (5, 2.0), (3, 1.0)], None, r"\[0.0, 5.0, 3.0\]: expected increasing times"),
        ([(0, 1.0), (np.inf, 2.0)], None, "inf.*: expected finite numbers"),
        ([(0, 1.0)], -1, "the period -1: expected finite numbers"),
        ([(0, 1.0), (5, 2.0)], 3, "the period 3: expected increasing times, and a period after the last one"),
        ([(0, 1.0), (1e-9, 2.0)], 2e-9, "more than 100000 phases"),
        ([1.0, 2.0], None, "pairs"),
        (5, None, "pairs"),
        ([(0, "1")], None, "give a number"),
        ([(0, 1.0), (1, -1.0)], None, "the rate is -1"),
    ],
)
def test_a_wrong_schedule_is_refused(rates, values, period, told):
    def ask(method):
        model = kolmo.Model(rates, mu=kolmo.Schedule(values, period), **{"lambda": 1.0})
        model.check("P=? [ F<=6 q=1 ]") if method == "check" else model.transient(6)

    for method in ("check", "transient"):
        with pytest.raises(kolmo.InvalidInput, match=told):
            ask(method)


def test_questions_that_schedules_do_not_answer_are_refused(rates):
    model = kolmo.Model(rates, mu=SERVED, **{"lambda": DAYS})
    for ask, told in (
        (lambda: model.check("S=? [ q=1 ]"), "rates that change with time"),
        (lambda: model.check("P=? [ F<=1 q=1 ]", truncate=1e-12), "mu changes with time"),
        (lambda: model.transient(1.0, truncate=1e-12), "mu changes with time"),
        (lambda: model.chain(), "mu changes with time"),
        (lambda: model.sweep(mu=[SERVED, 1.0]).check("P=? [ F<=1 q=1 ]"), "mu changes with time"),
        (lambda: model.transient(np.inf), "more than 100000 phases"),
    ):
        with pytest.raises(kolmo.InvalidInput, match=told):
            ask()


ENDLESS = """ctmc
module queue
    q : int init 0;
    [] true -> 2 : (q'=q+1);
    [serve] q > 0 -> 3 : (q'=q-1);
endmodule
label "long" = q >= 5;
rewards "waiting" q > 3 : 1; endrewards
"""


def test_models_without_end_are_explored_as_far_as_probability_comes(command, tmp_path):
    path = tmp_path / "endless.sm"
    path.write_text(ENDLESS)
    model = kolmo.Model(path)
    r = model.transient([1.0, 10.0], epsilon=1e-6, truncate=1e-8)
    assert r.met and r.p.shape == (2, r.chain.n) and r.chain.n < 400
    # Lost probability is in none of the states, and is a part of the bound.
    assert np.all(r.loss <= 1e-8) and np.all(r.bound >= r.loss) and np.all(1 - r.p.sum(axis=1) <= r.bound)
    np.testing.assert_array_equal(r.bound, r.truncation + r.steady_state + r.rounding + r.loss)
    assert r.chain.state_name(0) == "(q=0)" and set(r.rewards) == {"waiting"}
    line = [command, "transient", str(path), "--time", "1,10", "--truncate", "1e-8", "--epsilon", "1e-6", "--device", "cpu"]
    line += ["--quiet", "-o", str(tmp_path / "p.npy")]
    subprocess.run(line, check=True, capture_output=True)
    np.testing.assert_array_equal(r.p, np.load(tmp_path / "p.npy").reshape(r.p.shape))
    reached = model.transient(10.0, epsilon=1e-6, truncate=1e-8, absorbing='"long"')
    checked = model.check('P=? [ F<=10 "long" ]', epsilon=1e-6, truncate=1e-8, device="cpu")
    (answer,) = checked
    assert answer.loss <= 1e-8 <= answer.bound <= 1e-6
    assert abs(reached.p[0, reached.chain.labels["long"]].sum() - answer.value) <= 2e-6
    line = [command, "check", str(path), 'P=? [ F<=10 "long" ]', "--truncate", "1e-8", "--epsilon", "1e-6", "--device", "cpu"]
    subprocess.run([*line, "--quiet", "--report", str(tmp_path / "r.json")], check=True, capture_output=True)
    (row,) = json.loads((tmp_path / "r.json").read_text())["properties"]
    assert (row["value"], row["bound"]) == (answer.number, answer.bound)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"truncate": 1e-3}, r"`truncate` 1e-3 is out of range.*`epsilon` 1e-9"),
        ({"truncate": 1e-12, "times": np.inf}, "no steady state"),
        ({"truncate": 1e-12, "absorbing": [0]}, "states have no numbers"),
        ({"truncate": 1e-12, "p0": 3}, "states have no numbers"),
        ({"truncate": 1e-12, "rewards": {}}, "leave p0 and rewards out"),
        ({"truncate": 1e-12, "absorbing": '"deadlock"'}, "deadlocks are not known"),
        ({"truncate": 1e-12, "absorbing": '"lnog"'}, "lnog"),
    ],
)
def test_what_a_truncated_model_cannot_be_asked_is_refused(tmp_path, options, told):
    (tmp_path / "endless.sm").write_text(ENDLESS)
    model = kolmo.Model(tmp_path / "endless.sm")
    with pytest.raises(kolmo.InvalidInput, match=told) as raised:
        model.transient(options.pop("times", 1.0), **options)
    assert "--" not in str(raised.value)
    with pytest.raises(kolmo.InvalidInput, match="explored already"):
        kolmo.read("tandem:3").transient(1.0, truncate=1e-12)


SENDER = """dtmc
const int N; const int MAX; const double loss = 0.2;
module sender
    sent : [0..N]; tries : [0..MAX]; failed : bool;
    [send] !failed & sent<N & tries<MAX -> 1-loss : (sent'=sent+1) & (tries'=0) + loss : (tries'=tries+1);
    [send] !failed & sent<N & tries=MAX -> 1-loss : (sent'=sent+1) & (tries'=0) + loss : (failed'=true);
    [] failed | sent=N -> true;
endmodule
rewards "sends" [send] true : 1; endrewards
"""


@pytest.mark.parametrize(("frames", "retries"), [(1, 0), (16, 2), (64, 5)])
def test_models_in_discrete_time_have_their_closed_forms(tmp_path, frames, retries):
    (tmp_path / "sender.pm").write_text(SENDER)
    loss, lost = 0.2, 0.2 ** (retries + 1)
    # Sends of a frame, whether it arrives or not, and frames that are begun.
    sends = (1 - lost) / (1 - loss)
    failed = -math.expm1(frames * math.log1p(-lost))
    begun = failed / lost
    wanted = {
        "P=? [ F sent=N ]": (1 - lost) ** frames,
        "P=? [ F<=N sent=N ]": (1 - loss) ** frames,
        "P=? [ X sent=1 ]": 1 - loss,
        "P=? [ (F sent=N) | (F failed) ]": 1.0,
        "P=? [ F G failed ]": failed,
        "P=? [ F (sent=N-1 & X sent=N) ]": (1 - lost) ** frames,
        'R{"sends"}=? [ F failed | sent=N ]': sends * begun,
        'R{"sends"}=? [ X true ]': 1.0,
        "S=? [ failed ]": failed,
    }
    model = kolmo.Model(tmp_path / "sender.pm", N=frames, MAX=retries)
    for answer, value in zip(model.check(*wanted, device="cpu"), wanted.values(), strict=True):
        assert abs(answer.value - value) <= answer.bound + 1e-13 * value, (answer, value)
    found = model.transient(steps=[frames], device="cpu")
    arrived = [found.chain.state_name(s) == f"(sent={frames}, tries=0, failed=false)" for s in range(found.chain.n)]
    assert abs(found.p[0, arrived].sum() - (1 - loss) ** frames) <= found.bound[0] + 1e-13


@pytest.mark.parametrize("precision", ["f64", "q64"])
def test_steps_of_matrices_have_their_closed_forms(precision):
    """Powers of a two-state chain, of a periodic cycle, and of Ehrenfest's urns."""
    a, b, n = 0.3, 0.1, 10
    urns = np.diag(1 - np.arange(n) / n, 1) + np.diag(np.arange(1, n + 1) / n, -1)
    steps = [0, 1, 10, 1000]
    two = [(b + a * (1 - a - b) ** k) / (a + b) for k in steps]
    table = [
        (np.array([[1 - a, a], [b, 1 - b]]), np.array([1.0, 0.0]), two),
        (np.roll(np.eye(5), 1, axis=1), np.arange(5.0), [float(k % 5) for k in steps]),
        (urns, np.arange(n + 1.0), [n / 2 * (1 - (1 - 2 / n) ** k) for k in steps]),
    ]
    for P, reward, exact in table:
        for found in (
            kolmo.transient(P, 0, steps=steps, discrete=True, precision=precision, device="cpu"),
            kolmo.Chain(P, discrete=True).transient(steps=steps, precision=precision, device="cpu"),
        ):
            away = np.abs(found.p @ reward - exact)
            assert np.all(away <= found.bound * reward.max() + 1e-13 * (1 + np.abs(exact))), (found.bound, away)
