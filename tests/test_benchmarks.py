"""That the measuring commands take every path at tiny sizes, and keep what they were not asked."""

import math
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import gpu
from dmlkit import losses


def test_every_part_runs_at_a_tiny_size_on_a_cpu(capsys):
    with torch.compiler.set_stance("force_eager"):  # compiling takes half a minute
        rows = gpu.rows("cpu", gpu.TINY)
    names = [str(row["what"]).rpartition(", ")[2] for row in rows if "bf16, " in str(row["what"])]
    assert names == [
        "cross-entropy",
        *(entry.name for entry in losses.entries()),
        "compiled",
    ]
    against = {row["against"] for row in rows}
    assert against >= {"bare loop", "cross-entropy", "eager"}
    assert any(str(each).startswith("faiss-cpu") for each in against)
    for row in rows:
        for value in (row["ms"], row["against_ms"], row["ratio"]):
            assert isinstance(value, float)
            assert 0 < value < math.inf
    assert len(capsys.readouterr().out.splitlines()) == len(rows)  # each is said when it is made


def test_without_a_gpu_the_command_says_so_and_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "RESULTS.md")
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        command.main(["gpu"])
    assert not command.RESULTS.exists()


def test_the_parts_for_a_cpu_leave_the_section_of_a_gpu_as_it_is(monkeypatch, tmp_path):
    results = tmp_path / "RESULTS.md"
    section = "## gpu\n\na machine with a GPU\n\n| what | ratio |\n|---|---|\n| a loss | 0.99 |\n"
    results.write_text("# Benchmarks\n\n## sphere\n\nold\n\n" + section)
    for mark, (page, _) in command.IN_DOCS.items():
        with (tmp_path / page).open("a") as file:
            file.write(f"<!-- {mark} -->\n<!-- /{mark} -->\n")
    monkeypatch.setattr(command, "RESULTS", results)
    monkeypatch.setattr(command, "DOCS", tmp_path)
    for part in command.ON_A_CPU:
        made = SimpleNamespace(rows=lambda part=part: [{"what": f"new {part}"}])
        monkeypatch.setitem(sys.modules, f"benchmarks.{part}", made)
    command.main([])
    assert results.read_text().endswith(section)
    assert "old" not in results.read_text()
    assert all(f"| new {part} |" in results.read_text() for part in command.ON_A_CPU)
