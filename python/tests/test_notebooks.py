"""Executes the notebooks in examples/notebooks. They contain their own assertions."""

from pathlib import Path

import pytest
from time_limits import seconds

nbformat = pytest.importorskip("nbformat", reason="nbformat and nbclient are not installed")
nbclient = pytest.importorskip("nbclient", reason="nbformat and nbclient are not installed")

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples/notebooks"
NAMES = ["masks", "plans", "sparse_attention"]


def test_every_notebook_is_executed():
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebook(name, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells), "stored without outputs"
    nbclient.NotebookClient(notebook, timeout=seconds(60), resources={"metadata": {"path": tmp_path}}).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(output.output_type == "stream" and output.name == "stdout" for output in printed)


def test_a_wrong_cell_is_an_error(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    client = nbclient.NotebookClient(notebook, timeout=seconds(60), resources={"metadata": {"path": tmp_path}})
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        client.execute()
