"""Imports of packages that only an extra installs.

    with requires_extra("arrow"):
        import pyarrow as pa

`pip install headrace` installs the packages for a broker, the clients and the shell tools. Everything else is an extra.
Using it without its packages raises an error that names the extra.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.common.errors import HeadraceError

EXTRAS = {
    "arrow": ("pyarrow",),
    "spark": ("pyspark", "py4j", "pyarrow"),
    "cluster": ("kazoo",),
    "monitoring": ("prometheus_client",),
    "opentelemetry": ("opentelemetry",),
    "console": ("starlette", "uvicorn", "prometheus_client"),
    "decoders": ("fastavro", "msgpack", "google", "grpc_tools"),
    "security": ("joserfc", "cryptography", "cffi"),
}
"""The top-level packages that each extra installs."""


class MissingExtraError(HeadraceError, ImportError):
    """A feature needs a package that is not installed."""


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Turns a failed import of one of the extra's packages into an error that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS[extra]:
            raise
        raise MissingExtraError(
            f"This feature needs {package}, which is not installed. Run: pip install 'headrace[{extra}]'"
        ) from error
