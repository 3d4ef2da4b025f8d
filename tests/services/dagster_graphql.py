"""Dagster's GraphQL over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, Final

from tests.services.dagster_records import error_text

# What to ask of a field that may answer with an error, and of one that may fail in Python code.
NOT_FOUND: Final = "__typename ... on Error { message }"
ERROR: Final = f"{NOT_FOUND} ... on PythonError {{ stack causes {{ message stack }} }}"
INVALID: Final = "... on RunConfigValidationInvalid { errors { message } }"


class GraphQLError(Exception):
    """Dagster refused a request, or failed over it."""


class GraphQL:
    """Sends queries and mutations to one webserver."""

    def __init__(self, url: str) -> None:
        """Take the webserver's address."""
        self.url = url.rstrip("/")

    def query(self, text: str, /, **variables: Any) -> dict[str, Any]:
        """Send a query or mutation, and return its ``data``.

        Raises:
            GraphQLError: The server answered with an error.
            OSError: It did not answer.
        """
        request = urllib.request.Request(
            f"{self.url}/graphql",
            data=json.dumps({"query": text, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise GraphQLError(f"HTTP {error.code}: {error.read().decode()[:2000]}") from None
        if answer.get("errors"):
            raise GraphQLError("; ".join(each["message"] for each in answer["errors"]))
        data: dict[str, Any] = answer["data"]
        return data

    def expect(self, kind: str, text: str, **variables: Any) -> dict[str, Any]:
        """Send a query of one field, whose answer has to be of one type."""
        (answer,) = self.query(text, **variables).values()
        if answer["__typename"] == kind:
            return dict(answer)
        mistakes = [each["message"] for each in answer.get("errors", ())]
        told = "; ".join(mistakes) if mistakes else error_text({"message": "", **answer})
        raise GraphQLError(f"{answer['__typename']}: {told}")
