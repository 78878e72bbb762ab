"""The examples of documents: cells in Python, commands, and the output that a page shows."""

import contextlib
import io
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, skip_without_libraries

PAGES = [
    "README.md",
    "python/README.md",
    "docs/python.md",
    "docs/gradients.md",
    "docs/fitting.md",
    "docs/known-problems.md",
    "docs/schedules.md",
    "docs/parameter-studies.md",
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/primer/*.md")),
]
# Commands of these are tests of the command.
CELLS_ONLY = PAGES[:3]
NUMBER = re.compile(r"[-+]?\d[\d_]*\.?\d*(?:e[-+]?\d+)?")


def blocks(page):
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def output(kind, block, page, known, command, folder):
    """Runs a cell or a script and returns its standard output."""
    if kind == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, page, "exec"), known)
        return printed.getvalue()
    (folder / "kolmo").exists() or os.symlink(command, folder / "kolmo")
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-eu"], input=block, capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, f"{page}:\n{block}{done.stderr}"
    return done.stdout


def agree(shown, printed):
    """Compares two outputs: words exactly, numbers within the bounds of their lines.

    A line of CSV ends with its bound if the header says so; other numbers have ε = 1e-9 by default.
    The bound itself depends on the vector instructions of the machine, and may change threefold.
    """
    lines = list(zip(shown.splitlines(), printed.splitlines(), strict=True))
    bounded = lines[0][0].endswith((",bound", ",half_width")) if lines else False
    for k, (one, other) in enumerate(lines):
        assert NUMBER.split(one) == NUMBER.split(other), (one, other)
        left, right = ([float(x) for x in NUMBER.findall(line)] for line in (one, other))
        room = [2e-9 + 1e-12 * abs(x) for x in left]
        if bounded and k > 0 and left and not one.endswith(","):
            assert right[-1] <= 3 * left[-1] + 1e-15, (one, other)
            room = [x + left[-1] + right[-1] for x in room[:-1]]
        for x, y, most in zip(left, right, room):
            assert abs(x - y) <= most, (one, other)


# Releases of PyTorch and JAX warn of their own parts.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_a_page_run_and_print_what_it_shows(page, command, tmp_path, monkeypatch):
    skip_without_libraries(page, [block for kind, block in blocks(page) if kind == "python"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    known, printed, cells = {}, None, 0
    for kind, block in blocks(page):
        if kind == "python" or kind == "sh" and page not in CELLS_ONLY:
            printed = output(kind, block, page, known, command, tmp_path)
            cells += 1
        elif kind == "text" and page not in CELLS_ONLY:
            assert printed is not None, f"{page}: no block before the output {block}"
            agree(block, printed)
            printed = None
    assert cells, f"{page} has no block to run"


def test_the_book_has_every_page():
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    listed = {(ROOT / "docs" / name).resolve() for name in re.findall(r"\]\(([^)]+)\)", summary)}
    pages = {page.resolve() for page in ROOT.glob("docs/**/*.md")} - {(ROOT / "docs/SUMMARY.md").resolve()}
    assert pages <= listed, sorted(map(str, pages - listed))
    assert all(Path(page).exists() for page in listed)
