"""The documentation is run: every command of README, every file that it names, the help page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import Result

from docs import help as help_page
from obygaze_features.store import open_store
from tests.reproduce.made_up import make_authors
from tests.store.s3 import bucket
from tests.store.serving import serve

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(section: str, page: str = README) -> list[tuple[str, str]]:
    """The fenced blocks of a section, with their language."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return BLOCK.findall(text)


def run_console(block: str, obygaze: Callable[..., Result]) -> None:
    """Run the lines after ``$``; what stands below them must be among what they print."""
    for step in block.split("$ ")[1:]:
        command, *expected = step.splitlines()
        name, *arguments = shlex.split(command)
        assert name == "obygaze"
        result = obygaze(*arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        for line in expected:
            assert line in result.output, command


def test_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("Five minutes")
    assert [language for language, _ in found] == ["console", "toml", "console", "python"]
    run_console(found[0][1], obygaze)
    Path("tour/experiment.toml").write_text(found[1][1])
    run_console(found[2][1], obygaze)
    run = subprocess.run(
        [sys.executable, "-c", found[3][1]], capture_output=True, text=True, check=True
    )
    assert run.stdout == "6 (6, 32)\n"


def test_obygaze12(
    authors: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    obygaze: Callable[..., Result],
) -> None:
    shutil.copytree(authors / "obygaze12", tmp_path / "data")
    (tmp_path / "data").chmod(0o755)
    monkeypatch.chdir(tmp_path / "data")
    for language, block in blocks("ObyGaze12"):
        if language == "console":  # what is marked sh needs the films
            run_console(block, obygaze)
    assert Path("levels.png").stat().st_size > 10_000


def test_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_console(blocks("Five minutes")[0][1].rpartition("$ obygaze stores info")[0], obygaze)
    Path("tour/stores/tiny-xclip.zarr").rename("shared.zarr")
    found = blocks("Stores")
    assert [language for language, _ in found] == ["console", "python"]
    run_console(found[0][1], obygaze)
    run = subprocess.run(
        [sys.executable, "-c", found[1][1]], capture_output=True, text=True, check=True
    )
    assert run.stdout == "(32,) (2, 8, 32) (12, 32) 12\n"


def test_stores_on_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Of docs/travel.md what becomes of files; the recipe is given to an import of its own."""
    monkeypatch.chdir(tmp_path)
    run_console(blocks("Five minutes")[0][1], obygaze)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = (ROOT / "docs/travel.md").read_text()
    printed = []
    with serve(tmp_path) as served, bucket("lab-features"):
        for language, block in BLOCK.findall(text.replace("https://lab.example", served.url)):
            if language == "console":
                run_console(block, obygaze)
            elif language == "python":
                run = subprocess.run(
                    [sys.executable, "-c", block], capture_output=True, text=True, check=True
                )
                printed += run.stdout.splitlines()
            elif language == "toml":
                Path("made.toml").write_text(block)
            else:
                assert language == "sh"  # the Hub, which tests/exchange has a stand-in of
    assert printed == [
        "(12, 32) final",
        "['tt0000001-002', 'tt0000003-001'] (2, 8, 32)",
        "('frame', 'frames_2') tt0000001",
        "(8, 32)",
        "12 (12, 8, 32)",
    ]
    asked = "import pth features --manifest tour/manifest -o said.zarr --recipe made.toml"
    result = obygaze("stores", *asked.split())
    assert (result.exit_code, "unknown" in result.output) == (0, False)


def test_images_and_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Every block of docs/embeddings.md, in order."""
    monkeypatch.chdir(tmp_path)
    printed = ""
    for language, block in BLOCK.findall((ROOT / "docs/embeddings.md").read_text()):
        if language == "csv":
            Path("emotions.csv").write_text(block)
        elif language == "console":
            run_console(block, obygaze)
        else:
            assert language == "python"
            printed += subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            ).stdout
    assert printed == "(2, 2)\n"


def test_films_of_your_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("films/1996").mkdir(parents=True)
    for name in ("holiday.mp4", "wedding.mkv"):
        Path("films/1996", name).touch()
    Path("tension.csv").write_text("clip;tension;mood\na;calm;x\nb;uneasy;y\nc;tense;z\n")
    [(_, block)] = blocks("Films and annotations of your own")
    run_console(block, obygaze)


def test_the_zoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Every block of docs/zoo.md, in order; a file's block is what is named above it."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/zoo.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "console":
            run_console(block, obygaze)
        elif language in ("toml", "csv"):
            named = re.findall(rf"`(zoo/\w+[.]{language})`", text[: match.start()])
            Path(named[-1]).write_text(block)
        else:
            assert language == "python"
            told = subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            )
            assert told.stdout == "['Look' 'Body'] (400, 2)\n['Look']\n"


def test_mediaeval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Every block of docs/mediaeval.md, in order."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/mediaeval.md").read_text()
    printed = ""
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "console":
            run_console(block, obygaze)
        elif language == "toml":
            named = re.findall(r"`(mediaeval/\w+[.]toml)`", text[: match.start()])
            Path(named[-1]).write_text(block)
        else:
            assert language == "python"
            printed += subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            ).stdout
    assert printed == "violence 16 16 False\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "captions",
            "[('non-objectified', 1500.0), ('objectified', 0.0)]\n0.789474\n",
        ),
        ("gender-score", "0.453207 0.399123 53.17275\n"),
    ],
)
def test_captions_and_gender_scores(
    page: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    obygaze: Callable[..., Result],
) -> None:
    """Every block of these pages, in order; a table's block is what is named above it."""
    monkeypatch.chdir(tmp_path)
    Path(page.partition("-")[0]).mkdir()
    text = (ROOT / f"docs/{page}.md").read_text()
    printed = ""
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "csv":
            named = re.findall(r"`((?:captions|gender)/\w+[.]csv)`", text[: match.start()])
            Path(named[-1]).write_text(block)
        elif language == "console":
            run_console(block, obygaze)
        else:
            assert language == "python"
            printed += subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            ).stdout
    assert printed == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("saliency", "(8, 4, 4) (4, 4) a photo of an angry person\n"),
        ("caption-scores", "True 1.0 True\n"),
    ],
)
def test_saliency_and_caption_scores(
    page: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    obygaze: Callable[..., Result],
) -> None:
    """Every block of these pages, in order, but what needs published weights."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / f"docs/{page}.md").read_text()
    printed = ""
    for language, block in BLOCK.findall(text):
        if language == "csv":
            Path("captions").mkdir()
            Path("captions/scored.csv").write_text(block)
        elif language == "console":
            run_console(block, obygaze)
        elif language == "python":
            printed += subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            ).stdout
        else:
            assert language == "sh"
    assert printed == expected


def test_agreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Every block of docs/agreement.md but what needs annotators' films."""
    monkeypatch.chdir(tmp_path)
    Path("agree").mkdir()
    text = (ROOT / "docs/agreement.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "csv":
            Path(re.findall(r"`(agree/[\w/]+[.]csv)`", text[: match.start()])[-1]).write_text(block)
        elif language == "console":
            run_console(block, obygaze)


def calls_of(script: str) -> list[list[str]]:
    """The arguments of each `obygaze` in a script that bash runs: here they start sooner."""
    stand_in = 'obygaze() { printf "%s\\0" "$#" "$@"; }; export -f obygaze; exec bash "$0"'
    told = subprocess.run(["bash", "-c", stand_in, script], check=True, capture_output=True)
    words, calls = told.stdout.decode().split("\0")[:-1], []
    while words:
        count = int(words[0])
        calls.append(words[1 : 1 + count])
        words = words[1 + count :]
    return calls


@pytest.mark.skipif(sys.platform != "linux", reason="scripts for Slurm, and Ray")
def test_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Of docs/scale.md the commands in order, and its Slurm scripts as the tasks of an array."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/scale.md").read_text()
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "console":
            run_console(block, obygaze)
        elif language == "bash":
            name = re.findall(r"`(scale/\w+[.]sbatch)`", text[: match.start()])[-1]
            Path(name).write_text(block)
            count = int((re.findall(r"--array=1-(\d+)", block) or ["1"])[0])
            monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", str(count))
            for task in range(1, count + 1):
                monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
                for arguments in calls_of(name):
                    result = obygaze(*arguments)
                    assert result.exit_code == 0, f"{arguments}\n{result.output}"
    stores = [Path("scale/stores/tiny-xclip.zarr"), Path("scale/merged.zarr")]
    for store in [*stores, Path("scale/ray/tiny-xclip.zarr")]:
        assert open_store(store).status.tolist() == [1] * 40
        for name in ("native", "frames"):
            one, other = (open_store(path).array(name) for path in (stores[0], store))
            np.testing.assert_array_equal(one, other)


def test_association_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obygaze: Callable[..., Result]
) -> None:
    """Every block of docs/association.md but the one that needs a run and prompts."""
    monkeypatch.chdir(tmp_path)
    Path("eat").mkdir()
    text = (ROOT / "docs/association.md").read_text()
    printed = []
    for match in BLOCK.finditer(text):
        language, block = match.groups()
        if language == "console":
            run_console(block, obygaze)
        elif language == "text":
            Path(re.findall(r"`(eat/\w+[.]vec)`", text[: match.start()])[-1]).write_text(block)
        elif language == "python":
            run = subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=True
            )
            printed += run.stdout.splitlines()
        else:
            assert language == "sh"
    assert printed == ["d 1.506042, T 2.295120, p 0.05", "1.649786"]
    assert Path("eat/professions.csv").read_text().count("\n") == 4


def test_help_page_is_up_to_date() -> None:
    assert help_page.PATH.read_text() == help_page.page(), "run: make docs"


PAGES = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    if ".venv" not in path.parts
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_commands_that_pages_name_exist() -> None:
    known = {context.command_path: context.command for context in help_page.contexts()}
    for page in PAGES:
        for words in re.findall(r"`obygaze((?: [a-z][a-z0-9-]+)+)", page.read_text()):
            name = f"obygaze{words}"
            parent = known.get(name.rpartition(" ")[0])
            # The last word may be an argument, unless it stands where a command is meant.
            assert name in known or (parent and not isinstance(parent, click.Group)), name


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
def test_the_demo_spares_what_is_not_a_demo(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "film.mkv").write_text("precious")
    run = subprocess.run(
        [ROOT / "examples/demo.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("Error: demo is there and no earlier demo")
    assert (tmp_path / "demo" / "film.mkv").exists()


def test_the_reproduction(
    authors: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    obygaze: Callable[..., Result],
) -> None:
    """Of docs/reproduction.md what can be run on made-up features."""
    made_up = make_authors(tmp_path / "made", authors, widths=(48, 48, 48))
    shutil.copytree(authors / "obygaze12", tmp_path / "data")
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "data/stores").mkdir()
    for path in made_up.stores.values():
        name = {"xclip": "xclip-kinetics", "lsmdc": "xclip-lsmdc"}.get(path.stem, path.stem)
        path.rename(tmp_path / "data/stores" / f"{name}.zarr")
    monkeypatch.chdir(tmp_path / "data")
    text = (ROOT / "docs/reproduction.md").read_text()
    for language, block in BLOCK.findall(text):
        if language == "console":
            run_console(block, obygaze)
    for what in ("fig2", "table5"):
        assert Path("reproduction", what, f"{what}.tex").is_file()
