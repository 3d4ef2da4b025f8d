"""What a user sees of two pipelines in Dagster's UI, in a real browser.

With ``LAMINAR_SCREENSHOTS=1`` the pages that the documentation shows are written to it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.dagster.conftest import LONG, Stand

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.service("dagster_dev", "spark_connect", "chromium"),
    pytest.mark.timeout(900),
]

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
MANIFEST: Final = "clickstream/checkpoint_manifest"


@pytest.fixture(scope="module")
def epochs(stand: Stand) -> list[str]:
    """A few epochs of both pipelines: the keys of clickstream's."""
    for count in (600, 900, 500, 800)[len(stand.shop.committed()) :]:
        stand.shop.click(count)
        _run(stand, "clickstream")
    if not stand.shop.committed("alerts"):
        _run(stand, "alerts")
    return stand.shop.committed()


@pytest.fixture(scope="module")
def broken(stand: Stand, epochs: list[str]) -> str:
    """The key of an epoch that breaks its contract, after others."""
    assert epochs
    stand.shop.agree()
    stand.shop.click(200)
    stand.shop.buy(5_000)
    key = stand.next_key()
    failing = stand.dagster.launch("clickstream_epoch", partition=key)
    stand.dagster.wait(failing, "FAILURE", within=LONG)
    return key


def _run(stand: Stand, pipeline: str) -> None:
    key = stand.next_key(pipeline)
    run = stand.dagster.launch(f"{pipeline}_epoch_and_commit", partition=key)
    stand.dagster.wait(run, "SUCCESS", within=LONG)


@pytest.fixture
def patient(page: Page) -> Page:
    """A page that waits as long as a busy machine takes."""
    page.set_default_timeout(90_000)
    return page


def picture(page: Page, stand: Stand, name: str, clip: FloatRect | None = None) -> None:
    """Take a picture for the documentation, which must not tell where it was taken."""
    text = page.inner_text("body")
    assert str(stand.shop.root) not in text
    assert page.get_by_role("dialog").count() == 0
    if os.environ.get("LAMINAR_SCREENSHOTS") == "1":
        page.mouse.move(0, 0)
        page.screenshot(path=IMAGES / f"dagster-{name}.png", clip=clip, animations="disabled")


@pytest.mark.usefixtures("epochs")
def test_lineage_leads_through_both_pipelines(stand: Stand, patient: Page) -> None:
    page = patient
    page.goto(f"{stand.dagster.url}/asset-groups/")
    page.get_by_text("8 assets").wait_for()
    page.get_by_text("Hide navigation").click()
    page.get_by_label("panel_show_right").last.click()
    page.mouse.click(800, 300, button="right")
    page.get_by_role("menuitem", name="Expand all groups").click()
    for name in ("epoch_plan", "state_snapshot"):
        page.get_by_text(name, exact=True).nth(1).wait_for()
        assert page.get_by_text(name, exact=True).count() == 2
    # What the one writes and the other reads is there once.
    staged = ("page_minutes_staged", "purchases_staged", "large_purchases_staged")
    for name in ("clicks_source", "minutes", "purchases"):
        assert page.get_by_text(name, exact=True).count() == 1, name
    for name in staged:
        # The middle of a long name is left out on the screen.
        shown = re.compile(f"^{name[:6]}.*{name[-4:]}$")
        assert page.get_by_text(shown).count() == 1, name
    page.wait_for_timeout(3_000)
    picture(page, stand, "lineage", clip={"x": 0, "y": 0, "width": 1600, "height": 740})


def test_an_epoch_has_its_dossier(stand: Stand, epochs: list[str], patient: Page) -> None:
    page, newest = patient, epochs[-1]
    page.goto(f"{stand.dagster.url}/assets/{MANIFEST}?view=partitions&partition={newest}")
    for key in epochs[-3:]:
        page.get_by_text(key, exact=True).first.wait_for()
    page.get_by_text("records_read", exact=True).wait_for()
    for label in ("records_processed", "records_late", "rows_out", "published", "checkpoint"):
        assert page.get_by_text(label, exact=True).count() == 1, label
    assert page.get_by_text(stand.shop.published()[newest]).count() == 1
    assert page.get_by_text("by this run", exact=True).count() == 1
    picture(page, stand, "epoch")


@pytest.mark.usefixtures("epochs")
def test_numbers_are_plotted(stand: Stand, patient: Page) -> None:
    page = patient
    page.goto(f"{stand.dagster.url}/assets/{MANIFEST}?view=overview")
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("records_read", exact=True).wait_for()
    assert page.locator("canvas").count() >= 10
    for label in ("records_late", "records_per_second", "rows_out", "state_bytes"):
        assert page.get_by_text(label, exact=True).count() == 1, label
    page.get_by_text("rows_out", exact=True).scroll_into_view_if_needed()
    page.wait_for_timeout(1_000)
    picture(page, stand, "plots")


@pytest.mark.usefixtures("broken")
def test_a_check_says_why_it_failed(stand: Stand, patient: Page) -> None:
    page = patient
    page.goto(
        f"{stand.dagster.url}/assets/clickstream/purchases_staged?view=checks&checkDetail=contract"
    )
    page.get_by_text("blocking").first.wait_for()
    contract = "dbt_like_configs/clickstream/contracts/purchases.yml:1"
    page.get_by_text(f"Every row is as the contract says: {contract}").wait_for()
    page.get_by_text("less_than_or_equal_to(1000)").first.wait_for()
    assert page.get_by_text("Failed", exact=True).count() >= 1
    picture(page, stand, "check")


def test_runs_carry_epoch_and_kind_of_error(stand: Stand, broken: str, patient: Page) -> None:
    page = patient
    page.goto(f"{stand.dagster.url}/runs")
    page.get_by_text("laminar/error_kind: gate_failed").first.wait_for()
    assert page.get_by_text(f"laminar/epoch: {int(broken)}", exact=True).count() >= 1
    assert page.get_by_text("clickstream_epoch", exact=True).count() >= 1
    picture(page, stand, "runs")
