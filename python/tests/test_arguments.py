"""Invalid arguments: the text names the argument, the value and the expectation."""

import contextlib
import errno
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg

import kolmo

Q = np.array([[0, 1.0, 0], [2, 0, 3], [0, 1, 0]])
A = np.eye(3) * 4 + 1
CHAIN = kolmo.read("tandem:1")


def graph_of(library):
    """An object of a class with the module name of another library."""
    return type(
        "Graph", (), {"__module__": f"{library}.classes", "__iter__": lambda self: iter(range(3))}
    )()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda: kolmo.transient(Q, 0, 1, device=0),
            "invalid device 0: expected a text such as 'auto'",
        ),
        (lambda: kolmo.transient(Q, 0, 1, device=None), "invalid device None"),
        (lambda: CHAIN.transient(1, device=["cpu"]), r"invalid device \['cpu'\]"),
        (
            lambda: kolmo.solve_tridiagonal([1, 1], [4, 4, 4], [1, 1], [1, 2, 3], device=1),
            "invalid device 1",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, precision=np.float32),
            "invalid precision <class 'numpy.float32'>: expected 'f64'",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, rewards={1: [0, 0, 1]}),
            "invalid rewards 1: expected names",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, rewards=[0, 0, 1]),
            r"invalid rewards \[0, 0, 1\]: expected a mapping",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, rewards={"a": [1, np.nan, 0]}),
            r"rewards\['a'\] is nan in state 1",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, rewards={"a": [1, 0, -np.inf]}),
            r"rewards\['a'\] is -inf in state 2",
        ),
        (
            lambda: kolmo.transient(Q, 0, 1, epsilon=None),
            "invalid epsilon None: expected a number above 0",
        ),
        (lambda: kolmo.transient(Q, 0, 1, progress=3), "invalid progress 3: expected a function"),
        (lambda: kolmo.transient(Q, 0, None), r"times is missing: .*transient\(Q, p0, times\)"),
        (lambda: kolmo.transient(Q, [1.0, 2.0]), r"times is missing: .*transient\(Q, p0, times\)"),
        (lambda: kolmo.transient(Q, [1.0, 2.0], 0), r"give 3 numbers.*transient\(Q, p0, times\)"),
        (lambda: kolmo.transient(Q, 1.5, 0), r"whole numbers.*transient\(Q, p0, times\)"),
        (lambda: CHAIN.transient(0, [1.0, 2.0, 3.0, 4.0]), r"transient\(times, p0\)"),
        (lambda: kolmo.transient(Q, [0, 0, 0], 1), "sums to 0: expected a positive, finite sum$"),
        (lambda: kolmo.transient(Q, [1e308] * 3, 1), "sums to inf: expected a positive, finite sum$"),
        (
            lambda: kolmo.transient(Q, 0, 1, absorbing=[0, 0, 1]),
            "absorbing has the number 0 twice; .*mask as an array of bool",
        ),
        (lambda: CHAIN.transient(1, absorbing=[1, 1]), "absorbing has the number 1 twice"),
        (lambda: kolmo.pagerank(Q, [0, 0, 1]), "nodes has the number 0 twice"),
        (lambda: kolmo.pagerank(Q, seeds=[2, 2]), "seeds has the number 2 twice"),
        (lambda: kolmo.walk(A, [1.0] * 3, [1, 1]), "components has the number 1 twice"),
        (lambda: kolmo.transient(Q, 0, 1).plot([1, 1]), "states has the number 1 twice"),
        (
            lambda: kolmo.walk(A, [1.0] * 3, 0, seed=None),
            r"invalid seed None: expected a whole number from 0 to 2\*\*64 - 1",
        ),
        (lambda: kolmo.walk(A, [1.0] * 3, 0, seed=-1), "invalid seed -1"),
        (lambda: kolmo.walk(A, [1.0] * 3, 0, seed=2**64), "invalid seed 18446744073709551616"),
        (lambda: kolmo.pagerank(Q, damping="0.85"), "invalid damping '0.85'"),
        (lambda: kolmo.Graph(Q, undirected=2), "invalid undirected 2"),
        (lambda: kolmo.walk(A, [1.0] * 3, 0, splitting=None), "invalid splitting None"),
        (lambda: kolmo.walk(A, [1.0] * 3, 0, time_limit="1"), "invalid time_limit '1'"),
        (lambda: kolmo.solve_tridiagonal(4, [4.0], 4, [1.0], tolerance=-1), "invalid tolerance -1: expected a finite number"),
        (lambda: kolmo.TridiagonalFactor(4, [4.0], 4, tolerance=np.nan), "invalid tolerance nan"),
        (lambda: kolmo.solve_tridiagonal(4, [4.0], 4, [1.0], transpose="T"), "invalid transpose 'T'"),
        (lambda: kolmo.read(None), "invalid path None"),
        (lambda: kolmo.Model(3), "invalid path 3"),
        (
            lambda: CHAIN.transient(1, absorbing="x"),
            r"tandem:1 has no label 'x'; there are|it has no labels",
        ),
        (lambda: kolmo.read("birth-death:3,1,1").transient(1, absorbing="x"), "no label 'x'; "),
        (lambda: kolmo.transient(None, 0, 1), "invalid Q None: expected an array"),
        (
            lambda: kolmo.transient(CHAIN, 0, 1),
            r"Q is a kolmo\.Chain, not an array: call its method transient",
        ),
        (
            lambda: kolmo.walk(kolmo.Graph(Q), [1.0] * 3, 0),
            r"A is a kolmo\.Graph, not an array: kolmo\.pagerank takes it",
        ),
        (
            lambda: kolmo.transient(scipy.sparse.linalg.aslinearoperator(Q), 0, 1),
            "Q is a .*LinearOperator, which has no entries",
        ),
        (
            lambda: kolmo.pagerank(graph_of("networkx")),
            r"links is a graph of NetworkX.*to_scipy_sparse_array\(links\)",
        ),
        (
            lambda: kolmo.Graph(graph_of("igraph")),
            "links is a graph of igraph.*get_adjacency_sparse",
        ),
        (lambda: kolmo.transient([[1, 2], [3]], 0, 1), "Q is no array of numbers"),
        (
            lambda: kolmo.transient(Q + 0j, 0, 1),
            r"Q holds complex128; give Q\.real if all imaginary parts are 0",
        ),
        (lambda: kolmo.transient(sp.csr_array(Q + 0j), 0, 1), r"Q holds complex128; give Q\.real"),
        (lambda: kolmo.transient(Q - 1e-18, 0, 1), r"set it to 0 if it is a rounding error"),
        (lambda: kolmo.transient([[-0.11, 0.1098], [0, 0]], 0, 1), "leave the diagonal out"),
        (lambda: kolmo.expm_multiply(Q.T - 1e-18, Q[0]), "set it to 0 if it is a rounding error"),
    ],
)
def test_the_argument_the_value_and_the_expectation_are_named(call, told):
    with pytest.raises(kolmo.InvalidInput) as raised:
        call()
    assert re.search(told, str(raised.value)), str(raised.value)


WEIRD = [
    None,
    object(),
    "x",
    b"x",
    [1],
    [],
    -1,
    np.nan,
    np.inf,
    2**70,
    10**400,
    1.5,
    True,
    1j,
    {"a": 1},
    np.float32,
]
WEIRD += [
    CHAIN,
    np.array(None),
    np.ones((2, 2, 2)),
    sp.eye_array(3),
    np.array(["a"]),
    [[1, 2], [3]],
    {1, 2},
]

SYSTEM = {
    "dl": [1.0, 1],
    "d": [4.0, 4, 4],
    "du": [1.0, 1],
    "cyclic": False,
    "tolerance": 1e-12,
    "device": "cpu",
    "precision": None,
}
ASKED = {
    "times": 1.0,
    "p0": 0,
    "device": "cpu",
    "epsilon": 1e-9,
    "rewards": {},
    "absorbing": None,
    "precision": None,
}
WALKS = {"epsilon": 1e-2, "confidence": 0.95, "seed": 0}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (kolmo.transient, {"Q": Q, **ASKED}),
        (CHAIN.transient, {**ASKED, "truncate": None}),
        (
            kolmo.expm_multiply,
            {"A": -np.eye(3), "B": [1.0, 2, 3], "start": 0, "stop": 1, "num": 3, "endpoint": True},
        ),
        (
            kolmo.expm_multiply,
            {
                "A": -np.eye(3),
                "B": np.eye(3),
                "epsilon": 1e-9,
                "device": "cpu",
                "return_bound": True,
            },
        ),
        (
            kolmo.solve_tridiagonal,
            {**SYSTEM, "b": [1.0, 2, 3], "transpose": False, "full_output": False},
        ),
        (kolmo.TridiagonalFactor, SYSTEM),
        (kolmo.TridiagonalFactor(**SYSTEM).solve, {"b": np.ones(3), "transpose": False}),
        (
            kolmo.walk,
            {
                "A": A,
                "b": np.ones(3),
                "components": [0],
                "functional": None,
                "splitting": "auto",
                "device": "cpu",
                **WALKS,
            },
        ),
        (
            kolmo.pagerank,
            {
                "graph": Q,
                "nodes": None,
                "damping": 0.85,
                "seeds": (),
                "relative": 1e-3,
                "epsilon": 1e-2,
            },
        ),
        (kolmo.Graph, {"links": Q, "undirected": False, "seed": 0}),
        (kolmo.read, {"path": "tandem:1"}),
        (kolmo.read("tandem:1").state_name, {"state": 0}),
        (kolmo.pagerank(Q).top, {"count": 1}),
    ],
)
def test_no_argument_ends_in_an_exception_of_another_kind(call, arguments):
    call(**arguments)
    for name in arguments:
        for value in WEIRD:
            with contextlib.suppress(kolmo.Error):
                call(**{**arguments, name: value})


def test_arguments_that_have_a_meaning_are_taken():
    r = kolmo.transient(Q, 0, 1, rewards=None)
    assert r.rewards == {} and r == kolmo.transient(
        Q, np.int8(0), np.float32(1), epsilon=np.float64(1e-9)
    )
    assert kolmo.transient(Q, 0, 1, absorbing=np.array([0, 0, 1], dtype=bool)).met
    b = sp.csc_array(Q)
    np.testing.assert_array_equal(
        kolmo.expm_multiply(Q.T - np.diag(Q.sum(axis=1)), b),
        kolmo.expm_multiply(Q.T - np.diag(Q.sum(axis=1)), Q),
    )


def repeated(value, kind, rows, columns, times):
    """A matrix of 3 rows with each entry stored `times` times, in three formats."""
    data = np.full(times * len(rows), value, dtype=kind)
    rows, columns = np.repeat(rows, times), np.repeat(columns, times)
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(4))
    yield sp.coo_array((data, (rows, columns)), shape=(3, 3))
    yield sp.csr_array((data[order], columns[order], starts), shape=(3, 3))
    # The pattern is symmetric, so that the csr arrays serve as csc.
    yield sp.csc_array((data[order], columns[order], starts), shape=(3, 3))


@pytest.mark.filterwarnings("ignore::kolmo.ConversionWarning")
@pytest.mark.parametrize(
    ("value", "kind"), [(1, np.uint8), (1, np.int8), (120, np.int16), (2**24 + 1, np.int32)]
)
def test_entries_at_one_place_are_added_as_doubles(value, kind):
    """Sums of 300 small integers wrap in their own type."""
    for given in repeated(value, kind, [0, 0, 1, 2], [1, 2, 0, 0], 300):
        exact = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0.0]]) * 300 * value
        np.testing.assert_array_equal(
            kolmo.transient(given, 0, 1e-6).p, kolmo.transient(exact, 0, 1e-6).p
        )
        if value == 1:
            assert kolmo.pagerank(given) == kolmo.pagerank(exact)
        assert given.nnz == 1200 and given.dtype == kind, "the argument is as it was"
    for given in repeated(value, kind, [0, 1, 2], [0, 1, 2], 300):
        walked = kolmo.walk(given, [3.0, 6, 9], [0, 1, 2], epsilon=1e-12)
        np.testing.assert_allclose(walked.estimate, np.array([3.0, 6, 9]) / (300.0 * value))
    if np.dtype(kind).kind == "i":
        for given in repeated(-value, kind, [0, 1, 2], [0, 1, 2], 300):
            x = kolmo.expm_multiply(given, [1.0, 2, 3], 0, 1e-3 / value, 2)
            np.testing.assert_allclose(x[1], np.exp(-0.3) * np.array([1.0, 2, 3]), rtol=1e-8)


MIGRATIONS = """.8910 .0963 .0078 .0019 .0030 .0000 .0000 .0000
.0086 .9010 .0747 .0099 .0029 .0029 .0000 .0000
.0009 .0291 .8894 .0649 .0101 .0045 .0000 .0009
.0006 .0043 .0656 .8427 .0644 .0160 .0018 .0045
.0004 .0022 .0079 .0719 .7764 .1043 .0127 .0241
.0000 .0019 .0031 .0066 .0517 .8246 .0435 .0685
.0000 .0000 .0116 .0116 .0203 .0754 .6493 .2319
.0000 .0000 .0000 .0000 .0000 .0000 .0000 1.0"""


def test_a_printed_table_of_probabilities_is_asked_about():
    """Rows of four digits sum to 0.9998 ... 1.0001 (Jarrow, Lando, Turnbull 1997)."""
    table = np.array([row.split() for row in MIGRATIONS.splitlines()], dtype=float)
    assert 0 < np.abs(table.sum(axis=1) - 1).max() < 1e-3
    for given in (table, sp.csr_array(table), sp.csc_array(table)):
        with pytest.warns(UserWarning, match="discrete-time.*discrete=True"):
            kolmo.transient(given, 0, 1.0)
    with pytest.raises(kolmo.InvalidInput, match="leave the diagonal out"):
        kolmo.transient(table - np.eye(8), 0, 1.0)
    np.fill_diagonal(table, 0)
    assert kolmo.transient(table, 0, 1.0).met
    ring = np.roll(np.eye(4), 1, axis=1) * 1.0005
    assert kolmo.transient(ring, 0, 1.0).met, "rates above 1 are no probabilities"


def test_files_have_the_attributes_of_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        kolmo.read(tmp_path / "none.tra")
    error = raised.value
    assert isinstance(error, kolmo.FileError) and isinstance(error, kolmo.Error)
    assert (error.errno, error.filename) == (errno.ENOENT, str(tmp_path / "none.tra"))
    assert str(error).startswith(str(tmp_path)) and "no such file" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.errno, again.filename) == (
        type(error),
        str(error),
        error.errno,
        error.filename,
    )
    with pytest.raises(FileNotFoundError):
        kolmo.Model(tmp_path / "none.sm")
    (tmp_path / "bad.tra").write_text("2 1\n0 1 x\n")
    with pytest.raises(kolmo.FileError, match=":2:") as raised:
        kolmo.read(tmp_path / "bad.tra")
    assert raised.value.errno is None and raised.value.filename == str(tmp_path / "bad.tra")
    assert not isinstance(raised.value, FileNotFoundError)


def test_both_triangles_of_a_symmetric_file_are_named(tmp_path):
    (tmp_path / "both.mtx").write_text(
        "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1.0\n1 2 1.0\n"
    )
    with pytest.raises(kolmo.FileError, match="one triangle of a symmetric matrix"):
        kolmo.read(tmp_path / "both.mtx")


def test_a_backend_that_is_not_there_is_not_offered():
    with pytest.raises(kolmo.DeviceError, match="invalid device 'cuda'") as raised:
        kolmo.transient(Q, 0, 1, device="cuda")
    unusable = [device["spec"] for device in kolmo.devices() if device["unusable"] is not None]
    offered = str(raised.value).split("available: ")[1]
    assert "cpu" in offered and not any(f"{spec} (" in offered for spec in unusable)


def test_the_bar_ends_at_100_percent_where_a_run_ends_early(capsys):
    assert kolmo.read("birth-death:200,0.5,1").transient(1e5, device="cpu", progress=True).met
    assert "100%" in capsys.readouterr().err.split("\r")[-1]


def test_fields_of_results_and_the_version_are_documented():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", kolmo.__version__)
    for result in (
        kolmo.Transient,
        kolmo.Walk,
        kolmo.PageRank,
        kolmo.Tridiagonal,
        kolmo.Answer,
        kolmo.Checked,
    ):
        for name in result.__dataclass_fields__:
            assert re.search(rf"^    {name} : ", result.__doc__, re.MULTILINE), (result, name)
