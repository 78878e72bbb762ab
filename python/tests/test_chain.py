import subprocess

import numpy as np
import pytest

import kolmo

TRA = "3 4\n0 1 0.02\n1 0 0.25\n1 2 0.01\n2 1 0.25\n"
LAB = '0="init" 1="deadlock" 2="down"\n0: 0\n2: 2\n'


@pytest.fixture
def units(tmp_path):
    (tmp_path / "units.tra").write_text(TRA)
    (tmp_path / "units.lab").write_text(LAB)
    (tmp_path / "units.srew").write_text("3 2\n0 2\n1 1\n")
    return tmp_path / "units.tra"


def test_a_file_brings_labels_rewards_and_a_beginning(units, command):
    chain = kolmo.read(units)
    assert chain.n == 3 and list(chain.labels["down"]) == [2]
    np.testing.assert_array_equal(chain.initial, [1, 0, 0])
    (name,) = chain.rewards
    np.testing.assert_array_equal(chain.rewards[name], [2, 1, 0])
    r = chain.transient([10, 100, np.inf])
    line = [command, "transient", units, "--time", "10,100,inf", "--label", "down", "--quiet"]
    told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    theirs = [float(row.split(",")[2]) for row in told.splitlines()[1:] if ",down," in row]
    np.testing.assert_array_equal(r.p[:, chain.labels["down"]].sum(axis=1), theirs)
    np.testing.assert_allclose(r.rewards[name], r.p @ [2, 1, 0], rtol=1e-12)
    assert chain.transient(10, rewards={}).rewards == {}


def test_absorbing_states_and_rates_are_those_of_a_matrix(units):
    chain = kolmo.read(str(units))
    rates = chain.rates()
    np.testing.assert_array_equal(rates.toarray(), [[0, 0.02, 0], [0.25, 0, 0.01], [0, 0.25, 0]])
    by_label = chain.transient(5, absorbing="down").p
    np.testing.assert_array_equal(by_label, kolmo.transient(rates, times=5, absorbing=[2]).p)
    np.testing.assert_array_equal(chain.transient(5, 1).p, kolmo.transient(rates, 1, 5).p)
    with pytest.raises(kolmo.InvalidInput, match="no label 'up'"):
        chain.transient(5, absorbing="up")


def test_files_that_do_not_hold_a_chain_are_refused(tmp_path):
    (tmp_path / "bad.tra").write_text("2 1\n0 1 x\n")
    with pytest.raises(kolmo.FileError, match=":2:"):
        kolmo.read(tmp_path / "bad.tra")
    with pytest.raises(OSError, match="no such file"):
        kolmo.read(tmp_path / "none.tra")
    with pytest.raises(kolmo.InvalidInput):
        kolmo.read("tandem:x")


def test_a_plot_has_a_line_for_each_state():
    import matplotlib

    matplotlib.use("Agg")
    r = kolmo.read("birth-death:10,0.9,1").transient(np.linspace(0, 5, 20))
    assert len(r.plot([0, 3, 9]).lines) == 3
