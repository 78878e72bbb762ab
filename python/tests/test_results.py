"""Results, chains, models, factors and graphs pickle, copy, compare and print."""

import copy
import dataclasses
import multiprocessing
import pickle

import numpy as np
import pytest
from chains import generator

import kolmo

QUEUE = """ctmc
const int N;
module queue
    q : [0..N];
    [] q < N -> 2 : (q'=q+1);
    [] q > 0 -> 3 : (q'=q-1);
endmodule
label "full" = q = N;
rewards "length" true : q; endrewards
"""


@pytest.fixture
def made(tmp_path):
    """Objects of every kind that pickles and compares."""
    (tmp_path / "queue.sm").write_text(QUEUE)
    (tmp_path / "units.tra").write_text("3 4\n0 1 0.02\n1 0 0.25\n1 2 0.01\n2 1 0.25\n")
    (tmp_path / "units.lab").write_text('0="init" 1="deadlock" 2="down"\n0: 0\n1: 0\n2: 2\n')
    (tmp_path / "links.txt").write_text("10 20\n20 10\n30 10\n30 20\n30 30\n")
    model = kolmo.Model(tmp_path / "queue.sm", N=4)
    chains = [kolmo.read("tandem:3"), kolmo.read(tmp_path / "units.tra"), model.chain()]
    ones = np.ones((2, 5))
    factors = [
        kolmo.TridiagonalFactor(-ones[0], 4 * ones[0], -ones[0, 1:].cumsum(), device="cpu"),
        kolmo.TridiagonalFactor(-ones, 4 * ones, -2 * ones, tolerance=1e-11),
        kolmo.TridiagonalFactor(-ones[0], 4 * ones[0], -2 * ones[0], cyclic=True),
    ]
    graphs = [
        kolmo.Graph([[0, 2, 0], [1, 0, 0], [1, 0, 0]]),
        kolmo.Graph(tmp_path / "links.txt"),
        kolmo.Graph("barabasi:30,2", undirected=True, seed=3),
    ]
    results = [
        kolmo.transient(generator(7), times=[1.0, 2.0], rewards={"r": np.arange(7.0)}),
        chains[1].transient([1.0, np.inf], rewards={}),
        model.transient(1.0, truncate=1e-10, epsilon=1e-8),
        kolmo.stationary(generator(7)),
        kolmo.absorption(generator(7), {"a": 0, "b": [3, 4]}),
        kolmo.hitting_time(generator(7), 0),
        kolmo.expected_reward(chains[1], [0.0, 1.0, 0.0], until="down"),
        kolmo.visits(generator(7), 3, until=0),
        kolmo.walk(5 * np.eye(4) - 1.0, np.ones(4), [1], functional=np.ones(4), splitting="jacobi"),
        kolmo.pagerank(graphs[0]),
        kolmo.solve_tridiagonal(ones[0], 4 * ones[0], ones[0], ones[0], full_output=True),
        model.check('P=? [ F<=1 "full" ]', 'S<0.1 [ "full" ]'),
        next(iter(model.check('P=? [ F<=1 "full" ]'))),
    ]
    return [model, *chains, *factors, *graphs, *results]


def answer(one):
    """Numbers that characterise an object, for comparison to the bit."""
    if isinstance(one, (kolmo.Chain, kolmo.Model)):
        return one.transient(
            [0.5, 3.0], absorbing=sorted(one.labels)[-1] if getattr(one, "labels", {}) else None
        )
    if isinstance(one, kolmo.TridiagonalFactor):
        return one.solve(np.arange(np.prod(one.shape), dtype=float).reshape(one.shape)).tolist()
    if isinstance(one, kolmo.Graph):
        return kolmo.pagerank(one), one.names.tolist(), one.links
    return one


def test_copies_are_equal_and_answer_alike(made):
    for one in made:
        copies = [
            pickle.loads(pickle.dumps(one, protocol)) for protocol in (2, pickle.HIGHEST_PROTOCOL)
        ]
        for other in (*copies, copy.deepcopy(one), copy.copy(one)):
            assert (
                type(other) is type(one) and (other == one) is True and (other != one) is False
            ), one
            assert answer(other) == answer(one)
            assert repr(other) == repr(one)
    for k, one in enumerate(made):
        assert all((one == other) is False for other in made[k + 1 :]), one
        assert (one == 3) is False and one != None  # noqa: E711


def test_copies_of_chains_keep_names_labels_and_what_was_added(made):
    units, queue = made[2:4]
    queue.labels["mine"] = np.array([1, 2], dtype=np.uint32)
    other = pickle.loads(pickle.dumps(queue))
    assert (
        other.state_name(4) == "(q=4)"
        and other.labels["mine"].tolist() == [1, 2]
        and other == queue
    )
    assert other.rewards["length"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(units)).initial, [0.5, 0.5, 0])
    other.labels["mine"][0] = 3
    assert other != queue and queue.labels["mine"][0] == 1
    deep = copy.deepcopy(queue)
    deep.labels["mine"][0] = 3
    assert queue.labels["mine"][0] == 1


def test_a_result_is_compared_by_its_numbers_where_nan_equals_nan(made):
    r = next(one for one in made if isinstance(one, kolmo.Transient))
    again = kolmo.transient(generator(7), times=[1.0, 2.0], rewards={"r": np.arange(7.0)})
    assert r == again, "seconds differ, and do not count"
    p = r.p.copy()
    p[0, 0] = np.nan
    assert dataclasses.replace(r, p=p) == dataclasses.replace(r, p=p.copy()) != r
    assert dataclasses.replace(r, alpha=np.nan) == dataclasses.replace(r, alpha=float("nan"))
    told = dataclasses.asdict(made[11])
    assert told["chain"] == made[11].chain and told["p"].shape == (2, 3)


def test_results_have_no_hash_and_what_does_not_change_has_one(made):
    for one in made:
        if dataclasses.is_dataclass(one):
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)
        else:
            assert hash(one) == hash(pickle.loads(pickle.dumps(one)))


def test_texts_are_short(made):
    for one in made:
        assert len(repr(one)) < 200 and type(one).__name__ in repr(one), repr(one)
    many = kolmo.read("tandem:15").transient(np.linspace(0, 1, 200))
    assert repr(many).startswith("Transient(200 times, 496 states, bound up to ")


def solved(chain):
    return chain.transient([1.0, 2.0])


@pytest.mark.slow
def test_chains_and_results_go_through_a_spawned_process(made):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for chain in made[1:4]:
            assert pool.apply(solved, (chain,)) == chain.transient([1.0, 2.0])
        with pytest.raises(kolmo.MissingFile, match="none") as raised:
            pool.apply(kolmo.read, ("none.tra",))
    assert raised.value.filename == "none.tra"


def test_memory_of_a_device_neither_pickles_nor_copies(monkeypatch):
    from test_device import There

    monkeypatch.setitem(kolmo._device.KINDS, 1, "cpu")
    diagonals = [There(np.full(5, value)) for value in (1.0, 4.0, 1.0)]
    factor = kolmo.TridiagonalFactor(*diagonals)
    for one, told in (
        (factor, "pickle copies of the diagonals"),
        (factor.solve(There(np.ones(5))), "from_dlpack"),
    ):
        for make in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match=told):
                make(one)
    assert factor == factor and factor != kolmo.TridiagonalFactor(
        np.ones(5), np.full(5, 4.0), np.ones(5)
    )
