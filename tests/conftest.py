"""Fixtures that several rooms share."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys

# No downloads from a hub, and scikit-learn checks array inputs of every type.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")
os.environ.pop("COLUMNS", None)  # xdist sets 80, but what is no terminal has no width
if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers that all use all cores slow each other down; set before NumPy is imported.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    gc.disable()  # until all tests are collected

from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

import obygaze_features as of
from tests.kit.authors import SIX_CLIPS, clip_table
from tests.kit.commands import main
from tests.kit.run import World
from tests.kit.store import a_store

if TYPE_CHECKING:  # a small installation has no scikit-learn
    import obygaze_models as om

for tier, examples in {"test": 10, "night": 100}.items():
    settings.register_profile(tier, deadline=None, max_examples=examples)
settings.load_profile(os.environ.get("OBYGAZE_TIER", "test"))

#: Files and folders whose tests are independent of each other and long: each test is its own group.
SPLIT = {"test_docs", "test_experiments_drawn", "faults"}
#: Folders whose files share expensive fixtures: on a second worker, those of report take 11 s more.
TOGETHER = {"report"}
#: Groups that take longest: they start first, so that no worker waits for them at the end.
FIRST = ("test_site", "test_reproduce", "test_docs", "test_authors", "test_report", "test_golden")


@pytest.hookimpl(tryfirst=True)  # before tiers are chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that click through a report as night, and start the longest files first."""
    for item in items:
        if "tab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.night)
    items.sort(key=lambda item: not item.path.stem.startswith(FIRST))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the garbage collector all that was imported: 12.9 s of CPU time instead of 14.5 s for
    the tests of manifests, which is more than five seconds for all."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(200_000, 20, 100)


@pytest.hookimpl(optionalhook=True)  # a small installation has no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file on one worker, in order, because they share fixtures.

    Those of the documentation and of `make faults` are long, and run on any worker.
    """
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = Path(nodeid.partition("::")[0])
            if path.stem in SPLIT or path.parent.name in SPLIT:
                return nodeid
            return str(path.parent if path.parent.name in TOGETHER else path)

    return Groups(config, log)


@pytest.fixture(autouse=bool(os.environ.get("OBYGAZE_OTHER_LAST_BITS")), scope="session")
def other_last_bits() -> Generator[None]:
    """Add one unit in the last place to all features, as another processor might."""
    import numpy as np

    read = of.Store.read

    def read_next(store: of.Store, *names: Any, **options: Any) -> Any:
        values = read(store, *names, **options)
        if values.dtype == np.float32:
            np.nextafter(values, np.float32(np.inf), out=values, where=values != 0)
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of.Store, "read", read_next)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail skipped tests if OBYGAZE_NO_SKIPS is set, as in the gate."""
    report = yield
    expected_failure = hasattr(report, "wasxfail")
    if report.skipped and not expected_failure and os.environ.get("OBYGAZE_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but OBYGAZE_NO_SKIPS is set: {report.longrepr}"
    return report


def run_obygaze(*arguments: object, code: int | None = None) -> Result:
    """``run_obygaze("manifests", "stats", folder)``: run a command, which must end with `code`."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert code in (None, result.exit_code), result.output
    return result


@pytest.fixture
def obygaze() -> Callable[..., Result]:
    return run_obygaze


def forget_package(name: str) -> None:
    """Import a package and its entry points again."""
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]
    importlib.invalidate_caches()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[..., Path]]:
    """Install a package ``mylab`` with files, entry points and a version; return its folder.
    Called without files, it removes the package."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)

    def install(
        files: Mapping[str, str] = MappingProxyType({}),
        points: Mapping[str, str] = MappingProxyType({}),
        version: str = "0.1.0",
        group: str = "obygaze.estimators",
    ) -> Path:
        shutil.rmtree(site, ignore_errors=True)
        info = site / f"mylab-{version}.dist-info"
        if files or points:
            (site / "mylab").mkdir(parents=True)
            info.mkdir()
            lines = [f"{name} = {path}\n" for name, path in points.items()]
            (info / "entry_points.txt").write_text(f"[{group}]\n" + "".join(lines))
            metadata = f"Metadata-Version: 2.1\nName: mylab\nVersion: {version}\n"
            (info / "METADATA").write_text(metadata)
            (info / "top_level.txt").write_text("mylab\n")
        for name, text in files.items():
            (site / "mylab" / name).write_text(text)
        forget_package("mylab")
        return site / "mylab"

    yield install
    forget_package("mylab")


@pytest.fixture(scope="session")
def authors() -> Path:
    """The authors' original files: the folders obygaze12/, mobygaze/ and golden/."""
    folder = os.environ.get("OBYGAZE_TEST_DATA")
    if not folder:
        pytest.skip("set OBYGAZE_TEST_DATA to the folder of the authors' files")
    return Path(folder)


def kit_fixture(target: str) -> Any:
    """Return a session fixture that calls a function or class of the kit with a new folder."""
    module, _, name = target.partition(":")

    @pytest.fixture(scope="session")
    def fixture(tmp_path_factory: pytest.TempPathFactory) -> Any:
        make = getattr(importlib.import_module(f"tests.kit.{module}"), name)
        return make(tmp_path_factory.mktemp(name))

    return fixture


world = kit_fixture("run:make_world")
images = kit_fixture("clips:make_images")
prompts = kit_fixture("clips:make_prompts")
checkpoints = kit_fixture("models:Checkpoints")  # read-only


@pytest.fixture(scope="session")
def experiment(world: World) -> om.Experiment:
    """An experiment trained on one pair of levels and tested on two others."""
    import obygaze_models as om

    return om.Experiment(
        name="Sure against Hard Negatives",
        manifest=world.manifest,
        store=world.store,
        split="ten",
        protocol="leak-free",
        positives=("S",),
        train_negatives=("HN",),
        test_negatives=(("EN",), ("EN", "HN")),
    )


@pytest.fixture(scope="session")
def final_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A final store of 18 rows, one of which failed. Do not change it."""
    path = a_store(tmp_path_factory.mktemp("final") / "toy.zarr")
    of.finalise(path)
    return path


@pytest.fixture
def other_store(tmp_path: Path) -> Path:
    of.finalise(a_store(tmp_path / "other.zarr", 5))
    return tmp_path / "other.zarr"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "annotations.csv").write_bytes(clip_table(*SIX_CLIPS))
    return tmp_path / "annotations.csv"


@pytest.fixture
def manifest(source: Path, tmp_path: Path) -> Path:
    of.Manifest.from_obygaze12(source).save(tmp_path / "manifest")
    return tmp_path / "manifest"


@pytest.fixture(scope="session")
def clips() -> SimpleNamespace:
    """Clips, their labels (two and three classes), and a bank of the concepts' directions."""
    import obygaze_models as om
    from tests.kit.clips import small_clips

    data = small_clips()
    bank = om.ConceptBank(C=1.0)
    bank.fit(data.X, data.concepts.astype(int), concept_names=data.concept_names)
    sure = (data.y == 2).astype(int)
    return SimpleNamespace(data=data, X=data.X, y=sure, levels=data.y, bank=bank)


@pytest.fixture(scope="session")
def network(clips: SimpleNamespace) -> Any:
    import obygaze_models as om

    network = om.MLPProbe((12, 6), early_stopping=False, max_iter=8, random_state=1)
    return network.fit(clips.X, clips.levels)
