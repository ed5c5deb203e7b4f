"""The share of pages that call noise a finding."""

import pytest

import obygaze_models as om
from tests.report.conftest import Page, predicted

RUNS = 60


@pytest.mark.night
@pytest.mark.parametrize("tests", [1, 5])
def test_noise_is_a_finding_in_at_most_five_of_a_hundred_runs(tests, tmp_path):
    """Each page has as many rows as there are runs on the same labels, all of them noise."""
    claims = 0
    for number in range(RUNS):
        runs = []
        for test in range(tests):
            seed = number * tests + test
            runs.append(predicted(tmp_path, films=12, signal=0, seed=seed, name=f"noise {test}"))
        page = Page(om.report(runs, tmp_path / "page.html", overwrite=True))
        claims += page.html.count('class="point"') > 0
    assert claims <= RUNS * 0.05
