"""Whom a server runs as when root starts it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from infra import accounts
from infra.errors import ServiceUnavailable


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)


def test_who_is_not_root_stays_who_he_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    owner = tmp_path.stat().st_uid
    assert accounts.without_root("it", ("nobody",), tmp_path) == []
    accounts.hand_over("it", ("nobody",), tmp_path)
    assert tmp_path.stat().st_uid == owner


@pytest.mark.usefixtures("root")
def test_the_first_account_that_exists_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/setpriv")
    prefix = accounts.without_root("it", ("nobody-of-this-name", "nobody"), Path("/"))
    assert prefix[prefix.index("--reuid") + 1] == str(pwd.getpwnam("nobody").pw_uid)
    assert prefix[1:3] == ["--pdeathsig", "keep"]
    assert "--ambient-caps" not in prefix


@pytest.mark.usefixtures("root")
def test_folders_that_others_may_not_enter_need_one_capability(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/setpriv")
    tmp_path.chmod(0o700)
    prefix = accounts.without_root("it", ("nobody",), tmp_path)
    assert prefix[-2:] == ["--ambient-caps", "+dac_override"]


@pytest.mark.usefixtures("root")
def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for act in (accounts.without_root, accounts.hand_over):
        with pytest.raises(ServiceUnavailable, match=r"^it: .*no account nobody-of-this-name"):
            act("it", ("nobody-of-this-name",), tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="setpriv"):
        accounts.without_root("it", ("nobody",), tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_are_handed_over(tmp_path: Path) -> None:
    accounts.hand_over("it", ("nobody",), tmp_path)
    assert tmp_path.stat().st_uid == pwd.getpwnam("nobody").pw_uid
