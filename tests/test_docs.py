"""The documentation is run: every command of README, and every page that can run."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
import numpy as np
import pytest
import sklearn
from click.testing import Result

import obygaze_features as of
import obygaze_models as om
from docs import measured
from docs.blocks import BLOCK, blocks
from tests.conftest import forget_package, run_obygaze
from tests.kit.authors import make_dataset
from tests.kit.commands import contexts
from tests.kit.models import write_gpt2, write_sentence_encoder
from tests.kit.servers import serve

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def read(name: str) -> str:
    return (ROOT / f"docs/{name}.md").read_text()


class Page:
    """Run the blocks of a page except `sh`; `printed` is what its Python blocks print."""

    def __init__(self, obygaze: Callable[..., Result]) -> None:
        self.obygaze = obygaze
        self.printed = ""

    def run(self, text: str, *, notebook: bool = False) -> str:
        """Run a page; with `notebook`, the Python blocks share their names like cells."""
        names: dict[str, object] = {"__name__": "page"}
        for kind, name, block in blocks(text):
            if kind == "file":
                self.write(name, block)
            elif kind == "console":
                self.console(block)
            elif kind == "python":
                self.python(block, names if notebook else dict(names))
        return self.printed

    def write(self, name: str, block: str) -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(block)

    def python(self, block: str, names: dict[str, object]) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "block", "exec"), names)
        self.printed += out.getvalue()

    def console(self, block: str) -> None:
        """Run the lines after ``$``, which may end with ``> FILE``. What stands below them must be
        among what they print. They end with 0, or with 3 where the page shows that something is
        skipped."""
        for step in block.split("$ ")[1:]:
            command, *expected = step.splitlines()
            name, *arguments = shlex.split(command)
            assert name == "obygaze"
            if arguments[-2:-1] == [">"]:
                result = self.call(arguments[:-2])
                Path(arguments[-1]).write_text(result.stdout)
            else:
                self.call(arguments, expected)

    def call(self, arguments: Sequence[str], expected: Iterable[str] = ()) -> Result:
        result = self.obygaze(*arguments)
        left_out = "WARNING: SKIPPED" in expected or "left out: 1" in expected
        code = 3 if left_out else 0
        assert result.exit_code == code, f"{arguments}\n{result.output}"
        for line in expected:
            assert line in result.output, arguments
        return result


@pytest.fixture
def page(obygaze: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.chdir(tmp_path)
    return Page(obygaze)


@pytest.fixture(scope="session")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tour")
    with contextlib.chdir(folder):
        Page(run_obygaze).console(BLOCK.findall(read("reference/python"))[0][1])
    return folder / "tour"


@pytest.fixture
def tour(extracted: Path, page: Page, tmp_path: Path) -> Page:
    shutil.copytree(extracted, tmp_path / "tour")
    return page


@pytest.fixture
def people(page: Page) -> Page:
    """Make the folder of the README's tour, without a model."""
    shutil.copytree(ROOT / "examples/pictures", "examples/pictures")
    page.console(BLOCK.findall(section("Five minutes"))[0][1])
    return page


@pytest.mark.parametrize("rate", ["0.5 fps", pytest.param("2 fps", marks=pytest.mark.night)])
def test_five_minute_tour_runs(rate: str, page: Page) -> None:
    """A lower rate is enough for the steps; the numbers are those of the README's own."""
    shutil.copytree(ROOT / "examples/pictures", "examples/pictures")
    tour = section("Five minutes")
    assert "2 fps" in tour
    assert page.run(tour.replace("2 fps", rate)) == "(56, 1280)\n"
    within = auroc("people/runs/person", "within")
    if rate != "2 fps":
        assert 0.8 < within < 1
        return
    percents = re.findall(r"(\d+)%", tour)
    stated, *of_quarters = (int(percent) / 100 for percent in percents)
    assert within == pytest.approx(stated, abs=0.01)
    page.console("$ obygaze manifests split people/manifest --by film --folds 4 --name quarters")
    experiment = Path("people/person.toml").read_text()
    page.write("people/across.toml", f'split = "quarters"\n{experiment}')
    page.console("$ obygaze models run people/across.toml -o people/runs/across")
    scores = [auroc("people/runs/across", over) for over in ("across", "within")]
    assert scores == pytest.approx(of_quarters, abs=0.01)


def auroc(folder: str, over: str) -> float:
    rows = om.load_run(folder).scores().query("metric == 'auroc' and model == 'logistic'")
    [mean] = rows.query("group == '' and over == @over")["mean"]
    return mean


@pytest.mark.night
def test_python_page_runs(tour: Page) -> None:
    _, examples = read("reference/python").split("\n```\n", 1)  # the first block made the folder
    printed = tour.run(examples).splitlines()
    assert printed[0] == "Manifest('annotations', 12 items)"
    for line in (
        "(12, 6, 8)",
        "12 torch.Size([12, 32])",
        "ClipDataset(12 clips, X 12x32, 3 films, 6 EN+HN, 6 S)",
        "(9, 2) (9, 8, 2)",
        "['logistic', 'bayes']",
    ):
        assert line in printed


@pytest.mark.night
def test_real_result_tutorial_runs(page: Page) -> None:
    """The page computes the score of its own run with scikit-learn alone."""
    by_scikit_learn, with_words = page.run(read("tutorials/real")).splitlines()[-2:]
    assert (by_scikit_learn, with_words) == ("0.71", "0.66")
    assert auroc("runs/level", "within") == pytest.approx(float(by_scikit_learn), abs=0.005)


@pytest.mark.night
def test_arrays_become_scores_a_page_and_a_model(page: Page) -> None:
    arrays, _ = read("tutorials/notebook").split("\n## Start from a network\n")
    printed = page.run(arrays, notebook=True)
    for text in (arrays, printed):
        assert re.search(r"^ *logistic +0\.74 +0\.60 +0\.87$", text, re.MULTILINE)
    assert "The reference is logistic" in printed
    assert Path("arrays.html").is_file()
    assert "8 False\n4 of 8 tested films were also trained on" in printed
    assert re.search(r"^ *0\.74 +NaN +NaN$", printed, re.MULTILINE)


@pytest.mark.night
def test_videos_tutorial_runs(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(ROOT / "examples/pictures", "examples/pictures")
    text = read("tutorials/videos")
    page.run(text)
    stated = [int(percent) / 100 for percent in re.findall(r"(\d+)% of the time", text)]
    scores = [auroc("mine/runs/person", "within"), auroc("mine/runs/across", "across")]
    assert scores == pytest.approx(stated, abs=0.01)
    _, network = read("tutorials/notebook").split("\n## Start from a network\n")
    page.printed = ""
    printed = page.run(network, notebook=True).splitlines()
    assert printed[0] == "(132, 16) {}"
    assert printed[3].startswith("4 films; mean over films: 0.")
    assert Path("mine/notebook.html").is_file()


@pytest.mark.night
def test_sharing_pages_run(tour: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's recipe is tested on a separate import."""
    tour.console("$ obygaze stores finalise tour/stores/tiny-xclip.zarr")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = read("how-to/share")
    with serve(tmp_path) as served:
        printed = tour.run(text.replace("https://lab.example", served.url))
    assert printed == (
        "(2, 8, 32)\n('frame', 'feature') tt0000001\ntorch.Size([8, 8, 32]) 8\n"
        "torch.Size([4, 8, 32]) 4\n(12, 32) final\n3 32\n[0.1, 0.9]\nTrue []\n8\n"
    )
    arguments = "import features --manifest tour/manifest -o recipe.zarr --recipe made.toml"
    assert "unknown" not in tour.call(["stores", *arguments.split()]).output


PRINTED = {
    "how-to/bias": "d 1.506042, T 2.295120, p 0.05\n1.649786\n"
    "[('non-objectified', 1500.0), ('objectified', 0.0)]\n0.789474\n"
    "(8, 4, 4) (4, 4) a photo of an angry person\n"
    "0.453207 0.399123 53.17275\n"
    "True 1.0 True\n",
    "how-to/report": "",
    "how-to/search": "sintel-4s True\nTrue\n(132, 2)\n(2, 2)\n",
    "how-to/targets": "violence 16 svm-own-data\n",
}


#: Pages on experiments, runs, models and concepts; each continues the previous page.
PRINTED["reference/configuration reference/run explanation/scores"] = """\
True ['concepts', 'films', 'synthetic']
5
(1, 8) (1, 8)
(20, 8) {'film'}
['EN+HN', 'S'] (24, 5)
          on            by  clips  auroc
0  all clips     the model     24    1.0
1  all clips        random     24    0.5
2  all clips  all positive     24    0.5
3  all clips      majority     24    0.5
F1 of the positive class 0.50, weighted F1 0.80
F1 of the positive class 0.00, weighted F1 0.71
Look True
Body False
True
"""


@pytest.mark.night
@pytest.mark.parametrize("names", PRINTED)
def test_pages_run(names: str, page: Page, request: pytest.FixtureRequest) -> None:
    if names == "how-to/search":
        request.getfixturevalue("people")
    if names == "how-to/targets":
        page.console("$ obygaze models example mobygaze")
    if names == "how-to/bias":
        for name, write in (("gpt2", write_gpt2), ("encoder", write_sentence_encoder)):
            folder = Path("models", name)
            folder.mkdir(parents=True)
            write(folder, 0)
    for name in names.split():
        page.run(read(name))
    assert page.printed == PRINTED[names]


@pytest.mark.night
def test_moments_page_runs(people: Page) -> None:
    text = read("how-to/moments")
    scores = [float(number) for number in re.findall(r" (\d[.]\d+)", people.run(text))]
    [stated] = re.findall(r"higher (\d+)% to (\d+)% of the time", text)
    assert len(scores) == 4
    ends = [int(percent) / 100 for percent in stated]
    assert [min(scores), max(scores)] == pytest.approx(ends, abs=0.02)


def test_every_key_of_an_experiment_is_described() -> None:
    text = read("reference/configuration")
    described = re.findall(r"^\| `(\w+)` \|", text.partition("## Several")[0], re.MULTILINE)
    assert {*om.Experiment.__struct_fields__} <= {*described}


#: A detector with the interface of facenet-pytorch's, which is not installed. Every second frame
#: has a face, as high as its brightest value.
FACENET = """
import numpy as np
from torch.nn import Module

class MTCNN(Module):
    def detect(self, images):
        assert (images.device, images.shape[1:]) == (self.device, (320, 320, 3))
        boxes, certainties = [None] * len(images), [[None]] * len(images)
        for row in range(0, len(images), 2):
            boxes[row] = np.array([[0, 0, 9, images[row].max()], [0, 0, 1, 1]], np.float32)
            certainties[row] = np.array([0.75, 0.5], np.float32)
        return np.array(boxes, object), np.array(certainties, object)
"""


@pytest.mark.night
def test_extending_page_runs(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = read("how-to/extend")
    example = {
        path.relative_to(ROOT / "examples/plugin"): path.read_text()
        for path in (ROOT / "examples/plugin").rglob("*")
        if path.suffix in (".toml", ".py")
    }
    for name, content in example.items():
        assert content in text or name.name == "toy.py", name  # it is for CONTRIBUTING.md
        page.write(str(Path("lab", name)), content)
    options = "--no-deps --no-build-isolation --no-index --target site ./lab"
    pip = [sys.executable, "-m", "pip", "install", "-q", *options.split()]
    subprocess.run(pip, check=True, capture_output=True)
    monkeypatch.syspath_prepend(tmp_path)  # as by PYTHONPATH=.
    monkeypatch.syspath_prepend(tmp_path / "site")
    page.write("facenet_pytorch.py", FACENET)
    forget_package("film_lab")
    try:
        printed = page.run(text)
        assert printed == "{'native': (2, 3), 'frames': (2, 8, 3)}\n6 False\n"
        faces = of.open_store("stores/faces.zarr").read("frames")
        assert faces.shape == (4, 8, 2)
        assert (faces[:, ::2, 0] > 100 / 320).all()  # of pixels from 0 to 255
        assert (faces[:, ::2, 1] == 0.75).all()
        assert (faces[:, 1::2] == 0).all()
        assert of.open_store("sampled/Faces.zarr").read("frames").shape == (4, 360, 2)
        record = json.loads(Path("runs/first/run.json").read_text())
        assert record["versions"]["film-lab"] == "0.1"
        [folder, *_] = sorted(Path("runs/first/models/centroids").iterdir())
        model = om.load_model(folder).estimator
        assert type(model).__module__ == "film_lab.centroids"
        assert "frames" not in of.open_store("stores/only.zarr").arrays
    finally:
        forget_package("film_lab")


@pytest.mark.night
def test_senses_tutorial_runs(page: Page) -> None:
    """Sound helps, and six films cannot show it."""
    page.run(read("tutorials/senses"))
    rows = om.compare("senses/runs/all", "senses/runs/silent").table
    within = rows[(rows["metric"] == "auroc") & (rows["over"] == "within")]
    [row] = within.to_dict("records")
    assert row["score_reference"] > 0.9 > row["score"]
    assert row["difference"] < -0.05
    assert row["low"] < 0 < row["high"]


@pytest.mark.night
def test_annotation_tutorial_runs(page: Page) -> None:
    page.run(read("tutorials/scholars"))
    *_, levels, gamma = page.printed.splitlines()
    assert levels == "['S', 'EN', 'S', 'HN', 'S', 'EN']"
    assert 0 < float(gamma) < 1
    events = [line.split("\t") for line in Path("way/for-boris.tsv").read_text().splitlines()]
    assert {len(event) for event in events} == {6}
    assert events[0][0] == "0.0"
    assert events[-1][0] == "24.0"


@pytest.mark.night
def test_reproduction_tutorial_runs(authors: Path, page: Page, tmp_path: Path) -> None:
    shutil.copytree(authors / "obygaze12", tmp_path, dirs_exist_ok=True)
    tmp_path.chmod(0o755)
    made_up = make_dataset(tmp_path / "made", authors, widths=(48, 48, 48))
    Path("stores").mkdir()
    for path in made_up.stores.values():
        name = {"xclip": "xclip-kinetics", "lsmdc": "xclip-lsmdc"}.get(path.stem, path.stem)
        path.rename(Path("stores", f"{name}.zarr"))
    page.run(read("tutorials/reproduce"))
    for name in ("fig2", "table5"):
        assert Path("reproduction", name, f"{name}.csv").is_file()


def calls_of(script: str) -> list[list[str]]:
    """Return the arguments of each `obygaze` call in a bash script, with earlier starts."""
    stand_in = 'obygaze() { printf "%s\\0" "$#" "$@"; }; export -f obygaze; exec bash "$0"'
    result = subprocess.run(["bash", "-c", stand_in, script], check=True, capture_output=True)
    words = result.stdout.decode().split("\0")[:-1]
    calls = []
    while words:
        count = int(words[0])
        calls.append(words[1 : 1 + count])
        words = words[1 + count :]
    return calls


@pytest.mark.night
@pytest.mark.skipif(sys.platform != "linux", reason="scripts for Slurm")
def test_scale_page_runs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's commands in order, and its Slurm scripts as tasks of an array."""
    monkeypatch.setenv("DEVICES", "cpu cpu")
    monkeypatch.setenv("TMPDIR", str(Path.cwd()))  # of a node
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f".:{programs}:{os.environ['PATH']}")
    Path("sbatch").write_text("#!/bin/bash\necho $@ >> submitted\necho 7\n")
    Path("sbatch").chmod(0o755)
    text = read("how-to/scale").partition("\n## Ray\n")[0]
    for part in re.split(r"(?<=```\n\n)", text):
        page.run(part)
        for block in re.findall(r"```bash\n(.*?)```", part, re.DOTALL):
            name = re.findall(r"`(scale/\w+[.](?:sbatch|sh))`", part)[-1]
            count = int((re.findall(r"--array=1-(\d+)", block) or ["1"])[0])
            monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", str(count))
            for task in range(1, count + 1):
                monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
                for arguments in calls_of(name):
                    page.call(arguments)
    stores = ("stores/tiny-xclip", "gpus/tiny-xclip", "staged/tiny-xclip", "merged")
    first, *others = (of.open_store(f"scale/{name}.zarr") for name in stores)
    for store in others:
        assert store.status.tolist() == [1] * 40
        for name in ("native", "frames"):
            np.testing.assert_array_equal(first.read(name), store.read(name))


PAGES = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    if not {".venv", "_build", "commands"} & set(path.parts)
]


def test_every_page_with_commands_is_run() -> None:
    tests = "".join(path.read_text() for path in ROOT.glob("tests/**/test_*.py"))
    for path in PAGES:
        languages = {language for language, _ in BLOCK.findall(path.read_text())}
        if languages & {"console", "python"}:
            name = str(path.relative_to(ROOT)).removeprefix("docs/")
            assert re.search(rf"[\" /]{name.removesuffix('.md')}(.md)?[\" ]", tests), name


def test_measured_numbers_match_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    measured.main([])
    assert "docs/explanation/benchmarks.md: a table of" in capsys.readouterr().out


def test_links_have_targets() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page}: {link}"


def test_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    rooms = [ROOT / "obygaze_features", ROOT / "obygaze_models"]
    names = re.findall(r"`([a-z]+/[a-z0-9_/]+[.](?:py|html))`", text)
    assert len(names) > 15
    for name in names:
        assert any((room / name).exists() for room in rooms), name


def test_commands_named_by_pages_exist() -> None:
    commands = {context.command_path: context.command for context in contexts()}
    for page in PAGES:
        for words in re.findall(r"`obygaze((?: [a-z][a-z0-9-]+)+)", page.read_text()):
            name = f"obygaze{words}"
            parent = commands.get(name.rpartition(" ")[0])
            # The last word may be an argument, unless it is where a command must be.
            assert name in commands or (parent and not isinstance(parent, click.Group)), name


def test_commands_on_pages_have_their_options() -> None:
    """The commands are not run, because some pages run only at night or never."""
    commands = {context.command_path: context.command for context in contexts()}
    for page in PAGES:
        blocks = re.findall(r"```(?:console|sh)\n(.*?)```", page.read_text(), re.DOTALL)
        text = "\n".join(blocks).replace("\\\n", "")
        for line in re.findall(r"^(?:\$ )?(obygaze .*)", text, re.MULTILINE):
            name, *words = shlex.split(re.split(" [>&|]", line)[0], comments=True)
            while words and f"{name} {words[0]}" in commands:
                name = f"{name} {words.pop(0)}"
            with contextlib.suppress(click.exceptions.Exit):  # of --help
                commands[name].make_context(name, words)


@pytest.mark.night
@pytest.mark.filterwarnings("ignore:.*rows failed")  # two clips of a notebook have no features
@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_are_committed_without_outputs(path: Path, page: Page) -> None:
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    with sklearn.config_context():  # which a notebook changes
        names: dict[str, object] = {}
        for cell in cells:
            if cell["cell_type"] == "code":
                page.python("".join(cell["source"]), names)
