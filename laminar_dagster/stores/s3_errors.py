"""What an S3 client's exceptions mean in the port's words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from laminar_dagster.core.errors import (
    AuthFailed,
    ConditionsIgnored,
    InvalidConfig,
    LaminarError,
    ObjectMissing,
    StoreUnavailable,
)
from laminar_dagster.stores.read_back import Conflict, NotSent, Reply, Unanswered

# Everything a client can raise for a reason that is not a bug here.
CLIENT_ERRORS: Final = (ClientError, BotoCoreError, Boto3Error, ResponseParserError, OSError)

_NO_CREDENTIALS: Final = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
)
_WRONG_SETTINGS: Final = (
    InvalidRegionError,
    NoRegionError,
    ParamValidationError,
    ProfileNotFound,
)
_CREDENTIALS_REFUSED: Final = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_NO_CONNECTION: Final = (ConnectTimeoutError, EndpointConnectionError)


def code_of(error: Exception) -> str:
    """The server's word for an error; empty when there is none."""
    if not isinstance(error, ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: Exception) -> int:
    """The HTTP status of an error; 0 when there is none."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def translate(error: Exception, *, store: str, bucket: str, key: str | None = None) -> LaminarError:
    """The port's error for a client's exception.

    Args:
        error: One of `CLIENT_ERRORS`.
        store: The store's address.
        bucket: The bucket.
        key: The key of the object that was asked for, where there is one.
    """
    if isinstance(error, _NO_CREDENTIALS):
        return AuthFailed(store, str(error))
    if isinstance(error, _WRONG_SETTINGS):
        return InvalidConfig(store, str(error))
    code, status = code_of(error), status_of(error)
    reason = _reason(error)
    if code == "NoSuchBucket":
        return InvalidConfig(store, f"there is no bucket {bucket}", "create it, or mend the URL")
    if key is not None and status == 404:
        return ObjectMissing(key)
    if code in _CREDENTIALS_REFUSED or status in (401, 403):
        return AuthFailed(store, reason)
    if status in (301, 307):
        return InvalidConfig(store, reason, "set the bucket's own region")
    return StoreUnavailable(store, reason)


def reply_to_condition(error: Exception, *, store: str, bucket: str, key: str) -> Reply:
    """What a failed conditional write tells about its outcome.

    Raises:
        LaminarError: The write was refused for good.
    """
    code, status = code_of(error), status_of(error)
    if code == "NotImplemented" or status == 501:
        raise ConditionsIgnored(store, "it does not know conditional writes") from error
    if status in (409, 412):
        return Conflict()
    if isinstance(error, _NO_CONNECTION):
        return NotSent(StoreUnavailable(store, _reason(error)))
    meaning = translate(error, store=store, bucket=bucket, key=key)
    match meaning:
        case ObjectMissing():
            # There is nothing whose version could be the expected one.
            return Conflict()
        case StoreUnavailable(reason=reason):
            return Unanswered(reason)
        case _:
            raise meaning from error


@contextlib.contextmanager
def reported(*, store: str, bucket: str, key: str | None = None) -> Iterator[None]:
    """Turn the client's exceptions into the port's errors."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise translate(error, store=store, bucket=bucket, key=key) from error


def _reason(error: Exception) -> str:
    if not isinstance(error, ClientError):
        return str(error) or type(error).__name__
    message = str(error.response.get("Error", {}).get("Message", ""))[:500]
    return f"{code_of(error)} (HTTP {status_of(error)}): {message}"
