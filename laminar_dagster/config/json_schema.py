"""The JSON schema of ``pipeline.yml``, made from the models that read it.

Editors that know the YAML language server complete keys by it, show what each means, and underline
what ``laminar validate`` would refuse. It is no second judge: what it cannot say, such as the form
of a duration, it lets pass.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from laminar_dagster.config.pipeline import PipelineConfig

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: Final = frozenset({"integer", "number", "boolean"})
# A value that is taken from the environment is a text until it is.
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}


def pipeline_schema() -> dict[str, Any]:
    """The schema of ``pipeline.yml``."""
    (reference,), parts = msgspec.json.schema_components(
        [PipelineConfig], schema_hook=_of_name, ref_template="#/$defs/{name}"
    )
    models = {each.__name__: each for each in _models(PipelineConfig)}
    described = {name: _object(part, models[name]) for name, part in parts.items()}
    document = {
        "$schema": DIALECT,
        "title": "pipeline.yml of laminar-dagster",
        **reference,
        "$defs": described,
    }
    # Defaults of the models are tuples, and JSON has lists.
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return schema


def _of_name(kind: type) -> dict[str, Any]:
    """Names are texts with rules of their own."""
    if issubclass(kind, str):
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(kind)


def _models(kind: Any) -> set[type[msgspec.Struct]]:
    """A model, and those that its fields are made of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = (field.type for field in msgspec.structs.fields(kind))
        return {kind}.union(*map(_models, inner))
    return set[type[msgspec.Struct]]().union(*map(_models, getattr(kind, "__args__", ())))


def _object(part: Mapping[str, Any], model: type[msgspec.Struct]) -> dict[str, Any]:
    """A model as the reader takes it: no key that it does not know, and what each means."""
    meanings = attribute_texts(model)
    properties = {
        name: _described(_as_written(schema), meanings.get(name, ""))
        for name, schema in part["properties"].items()
    }
    summary = (inspect.getdoc(model) or "").partition("\n")[0]
    return {
        **part,
        "description": _plain(summary),
        "properties": properties,
        "additionalProperties": False,
    }


def _as_written(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What YAML may hold where the model has a value of this type."""
    default = {"default": schema["default"]} if "default" in schema else {}
    rest = {key: value for key, value in schema.items() if key != "default"}
    if rest.get("type") == "array":
        return {**rest, "items": _as_written(rest["items"]), **default}
    if rest.get("type") == "object" and "additionalProperties" in rest:
        # The reader takes an unquoted number or boolean for the text that it is.
        return {
            **rest,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
            **default,
        }
    if rest.get("type") in _SCALARS or "enum" in rest:
        return {"anyOf": [rest, dict(_VARIABLE)], **default}
    return {**rest, **default}


def _described(schema: dict[str, Any], meaning: str) -> dict[str, Any]:
    return {"description": meaning, **schema} if meaning else schema


def attribute_texts(model: type) -> dict[str, str]:
    """What a class's docstring says of each attribute, in one line."""
    _, _, attributes = (inspect.getdoc(model) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.M)
    return {name: _plain(" ".join(text.split())) for name, text in found}


def _plain(text: str) -> str:
    return text.replace("``", "`")
