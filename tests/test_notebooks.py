"""The notebooks of examples/ run from top to bottom in a kernel of their own."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.night
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
    executed = client.execute()
    errors = [
        output
        for cell in executed.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream" and output.name == "stderr" and "Warning" in output.text
    ]
    assert not errors
