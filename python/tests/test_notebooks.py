"""The pages with worked examples run as notebooks."""

import os

import pytest
from conftest import ROOT, skip_without_libraries

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")

PAGES = [
    "docs/parameter-studies.md",
    "docs/schedules.md",
    "docs/fitting.md",
    *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/primer/*.md")),
]
# Cells of commands begin with %%sh if the language of the notebook is Python.
KERNEL = "---\njupyter:\n  kernelspec:\n    name: python3\n    language: python\n    display_name: Python 3\n---\n"


# Releases of nbclient and ipykernel warn of their own dependencies.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_a_notebook(page, command, tmp_path, monkeypatch):
    os.symlink(command, tmp_path / "kolmo")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    notebook = jupytext.reads(KERNEL + (ROOT / page).read_text(), fmt="md")
    skip_without_libraries(page, [cell.source for cell in notebook.cells if cell.cell_type == "code"])
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    # Raises an exception with the cell and its output if a cell fails.
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells and all(cell.execution_count for cell in cells)
    assert any(cell.outputs for cell in cells)
