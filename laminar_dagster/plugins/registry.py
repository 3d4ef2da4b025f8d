"""Finds connectors by the entry points of installed distributions.

Names are read from the distributions' metadata; a connector's module is imported when it is asked
for by name. A distribution that is broken, or offers a name twice, is an error only then.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from laminar_dagster.config.mistakes import listed, nearest
from laminar_dagster.core.errors import InvalidConfig
from laminar_dagster.plugins.declarations import INTERFACE, Connector, Extra

ConnectorT = TypeVar("ConnectorT", bound=Connector)
ResultT = TypeVar("ResultT")

_OURS: Final = "laminar-dagster"


def known_names(kind: type[Connector]) -> tuple[str, ...]:
    """The names of all connectors of a kind, whether or not they can be loaded. Imports none."""
    return tuple(sorted(_offers(kind.GROUP, tuple(sys.path))))


def find(kind: type[ConnectorT], name: str, where: str) -> ConnectorT:
    """The declaration of a connector.

    Args:
        kind: Of which kind.
        name: Its name.
        where: Who asks for it, for errors.

    Raises:
        InvalidConfig: There is none of this name, or several; or it cannot be loaded, or was
            written for another interface. Names the distribution.
    """
    offers = _offers(kind.GROUP, tuple(sys.path))
    found = offers.get(name, ())
    if not found:
        raise InvalidConfig(where, f"no connector {name!r}", suggestion(kind, name))
    if len(found) > 1:
        several = " and ".join(sorted(map(_distribution, found)))
        problem = f"two plug-ins offer the connector `{name}`: {several}"
        raise InvalidConfig(where, problem, "uninstall one of them")
    return _load(kind, found[0], where)


def find_usable(
    kind: type[ConnectorT], name: str, options: Mapping[str, str], where: str
) -> ConnectorT:
    """As ``find``, and everything is installed that the connector needs with these options.

    Raises:
        InvalidConfig: As ``find``; or an extra is missing. Tells how to install it.
    """
    connector = find(kind, name, where)
    for _, problem, remedy in missing_extras(kind, name, connector.extras, options):
        raise InvalidConfig(where, problem, remedy)
    return connector


def use(
    kind: type[ConnectorT],
    name: str,
    options: Mapping[str, str],
    where: str,
    action: Callable[[ConnectorT], ResultT],
) -> ResultT:
    """Do something with a connector that can be used: what it imports for that, it may lack.

    Raises:
        InvalidConfig: As ``find_usable``; or a module cannot be imported. Names the distribution.
    """
    connector = find_usable(kind, name, options, where)
    try:
        return action(connector)
    except ImportError as error:
        (offer,) = _offers(kind.GROUP, tuple(sys.path))[name]
        raise _not_loaded(offer, error, where) from error


def missing_extras(
    kind: type[Connector], name: str, extras: Iterable[Extra], options: Mapping[str, str]
) -> Iterable[tuple[str, str, str]]:
    """Of each missing extra: the option that asks for it, the problem, and what to do."""
    for extra in extras:
        if extra.is_wanted(options) and not extra.is_installed():
            (offer,) = _offers(kind.GROUP, tuple(sys.path))[name]
            distribution = offer.dist.name if offer.dist else _OURS
            asks = f"`{extra.option}` = {options[extra.option]}" if extra.values else f"`{name}`"
            problem = f"the {kind.NOUN} {asks} needs packages that are not installed"
            yield extra.option, problem, f'pip install "{distribution}[{extra.name}]"'


def suggestion(kind: type[Connector], name: str) -> str:
    """What may have been meant by a name that no connector has."""
    known = known_names(kind)
    if not known:
        # Only metadata of an older install, or none at all, register nothing.
        return f"no plug-in is registered, not even {_OURS}'s own: install {_OURS} again"
    return nearest(name, known, listed(known, f"connectors of a {kind.NOUN}"))


@functools.lru_cache(maxsize=16)
def _offers(group: str, path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name, in the folders of ``path``.

    Args:
        group: Their group.
        path: ``sys.path``: a folder that is added later may hold further distributions.
    """
    offers: dict[str, tuple[EntryPoint, ...]] = {}
    for each in entry_points(group=group):
        offers[each.name] = (*offers.get(each.name, ()), each)
    return offers


def _load(kind: type[ConnectorT], offer: EntryPoint, where: str) -> ConnectorT:
    try:
        loaded = offer.load()
    # A plug-in's module may raise anything; that must not look like a fault of ours.
    except Exception as error:
        raise _not_loaded(offer, error, where) from error
    written_for = getattr(loaded, "interface", None)
    if isinstance(written_for, int) and written_for != INTERFACE:
        problem = (
            f"connector `{offer.name}` of {_distribution(offer)} is written for interface "
            f"{written_for} of laminar_dagster, which has {INTERFACE}"
        )
        raise InvalidConfig(where, problem, "install a version of it that fits, or uninstall it")
    if not isinstance(loaded, kind):
        problem = (
            f"connector `{offer.name}` of {_distribution(offer)} is declared by {offer.value}, "
            f"which is no {kind.__name__}"
        )
        raise InvalidConfig(where, problem, "update or uninstall that distribution")
    return loaded


def _not_loaded(offer: EntryPoint, error: Exception, where: str) -> InvalidConfig:
    told = f"{type(error).__name__}: {error}"
    problem = f"connector `{offer.name}` of {_distribution(offer)} cannot be loaded: {told}"
    return InvalidConfig(where, problem, "update or uninstall that distribution")


def _distribution(offer: EntryPoint) -> str:
    return f"{offer.dist.name} {offer.dist.version}" if offer.dist else offer.value
