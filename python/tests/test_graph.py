import json
import subprocess
import time

import numpy as np
import pytest
import scipy.sparse as sp

import kolmo


def graph(n=300, seed=0):
    """A random graph with repeated edges, a self-loop and a node without edges."""
    a = sp.random_array((n, n), density=0.02, rng=np.random.default_rng(seed), format="lil")
    a[a > 0] = 1
    a[3, 7], a[5, 5], a[11, :] = 2, 1, 0
    return a.tocsr()


def exact(a, damping=0.85, seeds=None):
    n = a.shape[0]
    start = np.full(n, 1 / n) if seeds is None else np.isin(np.arange(n), seeds) / len(seeds)
    out = a.sum(axis=1)
    p = np.where(out[:, None] > 0, a.toarray() / np.maximum(out, 1)[:, None], start)
    return np.linalg.solve(np.eye(n) - damping * p.T, (1 - damping) * start)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_intervals_hold_the_pageranks(form):
    a = graph()
    r = kolmo.pagerank(a.asformat(form))
    wanted = exact(a)
    assert r.met and np.all(abs(r.estimate - wanted) <= r.half_width + 1e-14) and np.all(r.half_width <= 1e-6 * r.estimate)
    np.testing.assert_array_equal(r.nodes, np.arange(300))
    np.testing.assert_array_equal(r.half_width, r.truncation + r.rounding)
    best = [node for node, _ in r.top(5)]
    assert best == list(np.argsort(-wanted, kind="stable")[:5])


def test_a_graph_is_kept_and_asked_of_some_nodes():
    a = graph()
    kept = kolmo.Graph(a)
    assert (kept.n, kept.links, repr(kept)) == (300, int(a.sum()), f"Graph(300 nodes, {int(a.sum())} links)")
    np.testing.assert_array_equal(kept.names, np.arange(300))
    one = kolmo.pagerank(kept, 7, damping=0.5, seeds=[1, 2], epsilon=1e-9)
    assert abs(one.estimate[0] - exact(a, 0.5, [1, 2])[7]) <= one.half_width[0] <= 1e-9
    both = kolmo.pagerank(kolmo.Graph(a, undirected=True), [7])
    np.testing.assert_allclose(both.estimate, exact(((a + a.T) - sp.diags_array(a.diagonal())).tocsr())[7], rtol=2e-6)


def test_files_and_answers_are_those_of_the_command(command, tmp_path):
    (tmp_path / "g.txt").write_text("# links\n10 20\n20 10\n30 10\n30 20\n")
    line = [command, "walk", str(tmp_path / "g.txt"), "--pagerank", "0.85", "--component", "10,30", "--quiet"]
    line += ["--report", str(tmp_path / "r.json")]
    subprocess.run(line, check=True, capture_output=True)
    told = json.loads((tmp_path / "r.json").read_text())
    kept = kolmo.Graph(tmp_path / "g.txt")
    r = kolmo.pagerank(kept, [10, 30])
    assert list(kept.names) == [10, 20, 30] and list(r.nodes) == [10, 30]
    assert [c["estimate"] for c in told["components"]] == r.estimate.tolist()
    assert [c["half_width"] for c in told["components"]] == r.half_width.tolist()
    assert kolmo.pagerank("barabasi:1000,4", [0]).met


@pytest.mark.parametrize(
    ("links", "options", "told"),
    [
        (np.ones((2, 3)), {}, "square"),
        ([[0, 0.5], [1, 0]], {}, "links holds 0.5"),
        ([[0, -1], [1, 0]], {}, "links holds -1"),
        ([[0, np.nan], [1, 0]], {}, "links holds nan"),
        ([[0, 1], [1, 0]], {"nodes": 2}, "node 2 is not in the graph of 2 nodes; the last is 1"),
        ([[0, 1], [1, 0]], {"nodes": -1}, "whole numbers"),
        ([[0, 1], [1, 0]], {"nodes": [0.5]}, "whole numbers"),
        ([[0, 1], [1, 0]], {"seeds": [9]}, "node 9"),
        ([[0, 1], [1, 0]], {"damping": 1.0}, "damping"),
        ([["a", "b"], ["c", "d"]], {}, "real numbers"),
    ],
)
def test_what_has_no_answer_is_refused(links, options, told):
    with pytest.raises(kolmo.InvalidInput, match=told) as raised:
        kolmo.pagerank(np.array(links), **options)
    assert "--" not in str(raised.value)


def test_progress_is_told_and_a_missing_file_is_named(tmp_path):
    seen = []
    kolmo.pagerank(graph(), progress=lambda done, most: seen.append((done, most)))
    assert seen and all(0 <= done <= most for done, most in seen)
    with pytest.raises(kolmo.FileError):
        kolmo.Graph(tmp_path / "none.txt")


def test_a_time_limit_ends_with_the_intervals_reached():
    n = 2000
    ring = sp.csr_array((np.ones(n), ((np.arange(n) + 1) % n, np.arange(n))), (n, n))
    began = time.perf_counter()
    with pytest.warns(kolmo.BoundWarning, match="more than was asked for"):
        r = kolmo.pagerank(ring, [5], damping=1 - 1e-10, seeds=[0], time_limit=0.2)
    assert time.perf_counter() - began < 2.2 and not r.met and np.all(abs(r.estimate - 1 / n) <= r.half_width + 1e-9)
    for wrong in (0, -1, np.inf, np.nan):
        with pytest.raises(kolmo.InvalidInput, match="time_limit is"):
            kolmo.pagerank(ring, time_limit=wrong)
