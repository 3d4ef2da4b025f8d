"""Finding a browser that runs, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import __main__ as command
from infra import chromium
from infra.catalogue import SERVICES, TOOLS
from infra.errors import ServiceUnavailable


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Chromium 150.0.7871.24 built on Debian GNU/Linux 12 (bookworm)\n", "150.0.7871.24"),
        ("Google Chrome 140.0.7339.80 \n", "140.0.7339.80"),
        ("Command '/usr/bin/chromium-browser' requires the chromium snap to be installed.", None),
        ("", None),
    ],
)
def test_parse_version(printed: str, version: str | None) -> None:
    assert chromium.parse_version(printed) == version


def fake_program(machine: Path, name: str, script: str) -> Path:
    program = machine / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, and without a package manager."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_stub_is_passed_over(machine: Path) -> None:
    fake_program(machine, "chromium", "echo 'Chromium is not installed' && exit 1")
    chrome = fake_program(machine, "google-chrome", "echo 'Google Chrome 140.0.1.2'")
    assert chromium.find() == chromium.Chromium(chrome, "140.0.1.2")
    assert chromium.require().program == chrome


def test_without_a_browser_it_says_how_to_get_one(machine: Path) -> None:
    assert chromium.find() is None
    with pytest.raises(ServiceUnavailable, match=r"^chromium: install Chromium: `python -m infra"):
        chromium.require()


def test_what_is_installed_already_is_not_installed_again(machine: Path) -> None:
    fake_program(machine, "chromium", "echo 'Chromium 150.0.1.2'")
    fake_program(machine, "apt-get", f"touch {machine}/called; exit 1")
    chromium.install()
    assert not (machine / "called").exists()


def test_it_is_installed_by_the_package_manager(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = machine / "bin" / "chromium"
    fake_program(
        machine,
        "apt-get",
        f"""echo "$@" >> {machine}/calls
        printf '#!/bin/sh\\necho Chromium 150.0.1.2\\n' > {browser} && chmod 755 {browser}""",
    )
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{_only(machine, 'env', 'chmod')}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    chromium.install()
    (call,) = (machine / "calls").read_text().splitlines()
    assert call.endswith("install -y --no-install-recommends chromium fonts-liberation")
    assert chromium.find() == chromium.Chromium(browser, "150.0.1.2")


def test_a_package_without_a_browser_is_told(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(machine, "apt-get", "exit 0")
    monkeypatch.setenv("PATH", f"{machine / 'bin'}:{_only(machine, 'env')}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ServiceUnavailable, match="was installed, but no Chromium on the PATH runs"):
        chromium.install()


def test_without_privilege_it_names_the_package(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_program(machine, "apt-get", "exit 1")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ServiceUnavailable, match=r"apt-get install chromium fonts-liberation$"):
        chromium.install()


def test_every_failure_of_an_install_is_told_and_the_rest_installed(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed: list[str] = []

    def missing(name: str) -> None:
        raise ServiceUnavailable(name, "buy one")

    monkeypatch.setattr(SERVICES["s3"], "install", lambda self: missing("s3"))
    monkeypatch.setattr(
        SERVICES["spark_connect"], "install", lambda self: installed.append("spark_connect")
    )
    monkeypatch.setitem(TOOLS, "chromium", lambda: missing("chromium"))
    assert command.main(["install"]) == 1
    assert capsys.readouterr().err == "error: s3: buy one\nerror: chromium: buy one\n"
    assert installed == ["spark_connect"]


def test_a_tool_is_not_started(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["up", "chromium"])
    assert "no such service: chromium" in capsys.readouterr().err
    assert command.main(["status"]) == 0
    assert "chromium" not in capsys.readouterr().out


def _only(machine: Path, *programs: str) -> Path:
    """A folder with these programs of the real machine, and so no browser of it."""
    folder = machine / "real"
    folder.mkdir()
    for name in programs:
        real = next(
            path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists()
        )
        (folder / name).symlink_to(real)
    return folder
