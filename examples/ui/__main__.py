"""The program of `make ui`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path
from typing import Final

import click

from examples.clickstream.generator import FEWEST_EVENTS, MOST_EVENTS
from examples.ui.stage import Stage, StageFailed
from infra.ports import LOOPBACK, free_port, is_listening

_HOME: Final = Path(".laminar") / "ui"
_USUAL_PORT: Final = 3000
_LOOK_AT: Final = """
  {url}/asset-groups/       lineage: both pipelines, from the logs to the tables
  {url}/assets/clickstream/checkpoint_manifest?view=partitions
                                        epochs; choose one to read its dossier
  {url}/automation          turn on clickstream_epoch_sensor: it takes what waits
  {url}/runs                every epoch is a run

Ctrl-C ends it. `make ui` again goes on from there; --anew begins anew.
"""


@click.command()
@click.option(
    "--events",
    type=click.IntRange(FEWEST_EVENTS, MOST_EVENTS),
    default=120_000,
    show_default=True,
    help="How many clicks to write, over all servers.",
)
@click.option("--port", type=int, help="Of the web server.  [default: 3000, or a free one]")
@click.option("--anew", is_flag=True, help="Forget what an earlier call left.")
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=_HOME,
    show_default=True,
    help="Where project, data and Dagster's memory go.",
)
def main(events: int, port: int | None, anew: bool, no_browser: bool, home: Path) -> None:
    """Open `dagster dev` with two pipelines loaded, some epochs run, and data waiting."""
    stage = Stage(home)
    if anew or not stage.is_set():
        try:
            stage.set_up(events, lambda text: click.echo(text, err=True))
        except StageFailed as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
    port = port or (free_port() if is_listening(_USUAL_PORT) else _USUAL_PORT)
    url = f"http://{LOOPBACK}:{port}"
    # A session of its own: `dagster dev` that a shell starts in the background ignores SIGTERM.
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "dagster", "dev"),
            *("--workspace", "workspace.yaml", "--host", LOOPBACK, "--port", str(port)),
        ],
        cwd=stage.project,
        env=stage.environment(),
        start_new_session=True,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.killpg(server.pid, signal.SIGINT))
    threading.Thread(target=_welcome, args=(url, no_browser), daemon=True).start()
    sys.exit(server.wait())


def _welcome(url: str, no_browser: bool) -> None:
    """Tell where to look, once there is something to see."""
    while True:
        try:
            with urllib.request.urlopen(f"{url}/server_info", timeout=5):
                break
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    click.echo(_LOOK_AT.format(url=url), err=True)
    if not no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(f"{url}/asset-groups/")


if __name__ == "__main__":
    main()
