"""A real S3 server: versitygw over a plain directory.

It is chosen because it honours ``If-None-Match: *`` and ``If-Match`` on PUT, decides them under a
lock, and builds from source with the Go toolchain alone.
"""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from infra.cache import cache_dir, install_once
from infra.errors import ServiceUnavailable
from infra.ports import LOOPBACK
from infra.service import Endpoint, Launch, Service

_VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"
_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Endpoint(Endpoint):
    """Where the S3 server listens, and who may use it.

    Attributes:
        access_key: Root access key, new with every start.
        secret_key: Its secret; left out of the representation, which ends up in test output.
        region: Region that requests have to be signed for.
        health_path: Path that only this server answers.
    """

    access_key: str
    secret_key: str = field(repr=False)
    region: str
    health_path: str = field(repr=False)

    @property
    def url(self) -> str:
        """The endpoint URL that S3 clients take."""
        return f"http://{self.host}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the variables that the AWS clients read."""
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }


class S3(Service[S3Endpoint]):
    """The S3 server; buckets are directories under ``<data_dir>/buckets``."""

    name: ClassVar[str] = "s3"

    def install(self) -> None:
        """Build the server with ``go install``; about three minutes, once."""
        install_once(_directory(), _build)

    def launch(self, data_dir: Path, port: int) -> Launch[S3Endpoint]:
        """Serve ``data_dir`` on loopback with fresh credentials."""
        buckets = data_dir / "buckets"
        buckets.mkdir(exist_ok=True)
        endpoint = S3Endpoint(
            host=LOOPBACK,
            port=port,
            access_key=secrets.token_hex(10),
            secret_key=secrets.token_hex(20),
            region=_REGION,
            health_path=f"/health-{secrets.token_hex(8)}",
        )
        gateway = ["--port", f"{LOOPBACK}:{port}", "--health", endpoint.health_path, "--quiet"]
        backend = ["posix", *_metadata_options(data_dir), str(buckets)]
        return Launch(
            command=[str(cache_dir() / _directory() / "versitygw"), *gateway, *backend],
            environment={
                "ROOT_ACCESS_KEY": endpoint.access_key,
                "ROOT_SECRET_KEY": endpoint.secret_key,
                "VGW_REGION": endpoint.region,
            },
            endpoint=endpoint,
        )

    def is_ready(self, endpoint: S3Endpoint) -> bool:
        """Ask for the health path, whose random name no other server knows."""
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=2)
        try:
            connection.request("GET", endpoint.health_path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def _directory() -> str:
    return f"versitygw-{_VERSION}"


def _build(into: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServiceUnavailable(S3.name, "install Go 1.25 or later, and have `go` on the PATH")
    # A cross-compiling GOOS or GOARCH makes `go install` refuse to write to GOBIN.
    dropped = {"GOOS", "GOARCH"}
    environment = {k: v for k, v in os.environ.items() if k not in dropped} | {"GOBIN": str(into)}
    result = subprocess.run(
        [go, "install", _MODULE],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        last = "\n".join(result.stdout.splitlines()[-5:])
        raise ServiceUnavailable(S3.name, f"`go install {_MODULE}` failed:\n{last}")


def _metadata_options(data_dir: Path) -> list[str]:
    """Keep ETags in extended attributes, or beside the data where the file system has none."""
    probe = data_dir / "xattr-probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.laminar", b"1")
    except (OSError, AttributeError):
        sidecar = data_dir / "sidecar"
        sidecar.mkdir(exist_ok=True)
        return ["--sidecar", str(sidecar)]
    finally:
        probe.unlink()
    return []
