"""Which runs may share a worker."""

import dataclasses
import sys
from pathlib import Path

import pytest

from laminar_dagster.orchestration.private_api import CodeOrigin
from laminar_dagster.orchestration.warm.identity import keeper_key, lasting, why_not_served

ORIGIN = CodeOrigin(
    text="module a",
    executable=sys.executable,
    folder=Path("/code"),
    image=None,
    location="a",
    is_local=True,
)
ENVIRONMENT = {"DATABASE": "one", "TERM": "xterm"}


def key(
    origin: CodeOrigin = ORIGIN,
    instance: str = "i",
    folder: str = "/code",
    environment: dict[str, str] = ENVIRONMENT,
) -> str:
    return keeper_key(origin, instance, Path(folder), environment)


def test_the_same_code_in_the_same_environment_shares() -> None:
    assert key() == key(environment={"TERM": "dumb", "SHLVL": "3", "DATABASE": "one"})


def test_everything_else_does_not() -> None:
    keys = {
        key(),
        key(dataclasses.replace(ORIGIN, text="module b")),
        key(dataclasses.replace(ORIGIN, location="b")),
        key(instance="j"),
        key(folder="/elsewhere"),
        key(environment={"DATABASE": "two"}),
        key(environment={}),
        key(environment={**ENVIRONMENT, "PASSWORD": "canary"}),
    }
    assert len(keys) == 8


def test_a_key_is_a_short_name_for_a_folder() -> None:
    assert len(key()) == 16
    assert key().isalnum()


def test_a_variable_that_is_not_text_is_no_obstacle() -> None:
    assert key(environment={"ODD": "\udcff"}) != key(environment={"ODD": "\udcfe"})


def test_terminals_and_logins_make_no_difference() -> None:
    volatile = {"SSH_CLIENT": "x", "TMUX": "y", "_": "z", "PYTEST_CURRENT_TEST": "t"}
    assert lasting({**volatile, "JAVA_HOME": "/java"}) == {"JAVA_HOME": "/java"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_local": False}, "the code location a is served on another machine"),
        ({"image": "shop:7"}, "its code lives in the container image shop:7"),
        ({"executable": "/no/python"}, "its Python, /no/python, is not on this machine"),
    ],
)
def test_what_cannot_be_served_is_told(change: dict[str, object], reason: str) -> None:
    assert why_not_served(dataclasses.replace(ORIGIN, **change)) == reason  # type: ignore[arg-type]


def test_a_run_without_an_origin_cannot_be_served() -> None:
    assert why_not_served(None) == "the run does not say where its code comes from"


def test_code_in_the_image_of_this_container_can_be_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DAGSTER_CURRENT_IMAGE", "shop:7")
    assert why_not_served(dataclasses.replace(ORIGIN, image="shop:7")) is None
    assert why_not_served(ORIGIN) is None
