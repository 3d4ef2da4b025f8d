"""Error translation: from an S3 client's exceptions to the ``ObjectStore`` port's errors."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Final

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
    SSLError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from laminar_dagster.clients.transience import PASSING_STATUS, is_passing
from laminar_dagster.core.errors import (
    AuthFailed,
    ConditionsIgnored,
    InvalidConfig,
    LaminarError,
    ObjectMissing,
    ServiceFailed,
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
# Error codes that are transient whatever the HTTP status.
_PASSING_CODES: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "InternalError",
        # An earlier request of the client's own retries has completed the upload.
        "NoSuchUpload",
        "OperationAborted",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# Transient exceptions: failed connections, and replies cut short.
_PASSING: Final = (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProxyConnectionError,
    ReadTimeoutError,
    ResponseParserError,
    ResponseStreamingError,
)
_BAD_CERTIFICATE: Final = "CERTIFICATE_VERIFY_FAILED"
_NO_CONNECTION: Final = (ConnectTimeoutError, EndpointConnectionError)


def code_of(error: Exception) -> str:
    """The S3 error code, such as ``NoSuchKey``; empty when there is none."""
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
        key: The requested object's key, if the request was for one; a 404 then means it is missing.
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
    if _is_passing(error, code, status):
        return StoreUnavailable(store, reason)
    if isinstance(error, SSLError) or isinstance(error, ssl.SSLCertVerificationError):
        return AuthFailed(store, reason)
    return ServiceFailed(f"object store {store}", reason)


def reply_to_condition(error: Exception, *, store: str, bucket: str, key: str) -> Reply:
    """Classify what the exception of a conditional write says about its outcome.

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
            # The object is gone, so it cannot have the expected version.
            return Conflict()
        case StoreUnavailable(reason=reason):
            return Unanswered(reason)
        case ServiceFailed(reason=reason):
            # Not a known S3 error: a proxy may have sent it, and the write may have succeeded.
            return Unanswered(reason, lasting=meaning)
        case _:
            raise meaning from error


@contextlib.contextmanager
def reported(*, store: str, bucket: str, key: str | None = None) -> Iterator[None]:
    """Turn the client's exceptions into the port's errors."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise translate(error, store=store, bucket=bucket, key=key) from error


def _is_passing(error: Exception, code: str, status: int) -> bool:
    if isinstance(error, ClientError):
        # Check codes too: RequestTimeout has status 400, and a 200 reply may hold an error.
        return status in PASSING_STATUS or code in _PASSING_CODES
    if isinstance(error, SSLError | ssl.SSLCertVerificationError):
        return _BAD_CERTIFICATE not in str(error)
    # Some of the client's exceptions are also an ``OSError``, but without an errno.
    return isinstance(error, _PASSING) or (isinstance(error, OSError) and is_passing(error))


def _reason(error: Exception) -> str:
    if not isinstance(error, ClientError):
        return str(error) or type(error).__name__
    message = str(error.response.get("Error", {}).get("Message", ""))[:500]
    return f"{code_of(error)} (HTTP {status_of(error)}): {message}"
