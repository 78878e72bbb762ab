import doctest
import importlib
import os
import subprocess
import sys

import pytest
from conftest import ROOT

import kolmo

@pytest.mark.parametrize("name", ["_transient", "_transient_batch", "_transition_matrices", "_tridiagonal", "_walk", "_chain", "_expm", "_model", "_graph", "_long_run"])
def test_examples_of_docstrings_print_what_they_say(name):
    module = importlib.import_module(f"kolmo.{name}")
    failed, tried = doctest.testmod(module)
    assert tried > 0 and failed == 0


@pytest.mark.slow
def test_stubs_and_types_are_those_of_the_package():
    source = str(ROOT / "python/python/kolmo")
    for line in (["mypy.stubtest", "kolmo._kolmo"], ["mypy", "--strict", "--ignore-missing-imports", source]):
        done = subprocess.run(
            [sys.executable, "-m", *line], capture_output=True, text=True, cwd=os.path.dirname(sys.executable)
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_is_exported():
    public = {name for name in vars(kolmo) if not name.startswith("_")} - {"jax", "torch"}
    assert public <= set(kolmo.__all__), public - set(kolmo.__all__)


def test_what_is_exported_has_a_docstring():
    for name in kolmo.__all__:
        assert (getattr(kolmo, name).__doc__ or "").strip(), name
