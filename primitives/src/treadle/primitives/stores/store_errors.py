"""Converts errors of file systems and of obstore to treadle's own, by two tables."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import MissingError, StoreError, TreadleError


class _Rule(NamedTuple):
    pattern: str
    what: str
    hint: str = ""
    """The remedy; empty: set the credentials of the store's scheme."""
    retryable: bool = False
    throttled: bool = False


_CREDENTIALS = {
    "s3": "Set AWS_PROFILE (boto3 must be installed), or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and (if temporary) "
    "AWS_SESSION_TOKEN, or run under a role",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials, or run under a service account",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or run under a managed identity",
}
_RIGHTS = "; check that they may read, write, list and delete there."

_WRONG_CREDENTIALS = "UnauthenticatedError|Unauthorized|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken"
_NO_ANSWER = "error sending request|[Cc]onnection|dns error|timed out|[Tt]imeout|error decoding response|HTTP error"
_SHORT = 6
_LIMITED = "It must offer conditional create and range reads."

_NO_BUCKET = "NoSuchBucket|bucket does not exist|ContainerNotFound"

_NO_CREDENTIALS = re.compile(r"credential provider: CredentialsError: ([^\n]*)")
_WRONG_REGION = re.compile(r"the region '[^']*' is wrong; expecting '([a-z0-9-]+)'")
"""Amazon S3 API reference, error responses: AuthorizationHeaderMalformed."""

_BY_TEXT = (
    _Rule(
        "redirect without LOCATION", "is in another region", 'Write region = "..." into the profile, or set AWS_REGION.'
    ),
    _Rule(_NO_BUCKET, "does not exist: there is no such bucket", "Create it, or correct the URL."),
    _Rule("169\\.254\\.169\\.254|169\\.254\\.170\\.2|MissingCredential", "needs credentials, and none were found"),
    _Rule(_WRONG_CREDENTIALS, "refused the credentials"),
    _Rule("PermissionDeniedError|AccessDenied|Forbidden|status: 40[13]", "denied access"),
    _Rule(
        "SlowDown|TooManyRequests|status: (429|503)|ServiceUnavailable",
        "is throttling",
        "Wait, or use fewer workers.",
        throttled=True,
    ),
    _Rule("NotSupportedError|NotImplemented|status: 501", "cannot do what is needed", _LIMITED),
    _Rule("status: 5\\d\\d|InternalError", "failed for a reason of its own", "Try again; look at its log.", True),
    _Rule(_NO_ANSWER, "is not reachable", "Check the endpoint (AWS_ENDPOINT_URL), network and service.", True),
)

_BY_ERRNO = {
    errno.ENOSPC: ("is full", "Free some space and resume: nothing committed is lost."),
    errno.EDQUOT: ("is over your quota", "Free some space and resume: nothing committed is lost."),
    errno.EROFS: ("is mounted read-only", "Use another folder, or mount it for writing."),
    errno.EACCES: ("denied access", "Check the owner and the mode of the folder and of those above it."),
    errno.EPERM: ("denied access, or cannot hold hard links", "Check owner and mode; use a file system with links."),
    errno.EOPNOTSUPP: ("cannot hold hard links", "Use a folder on a file system with links."),
    errno.ENOTDIR: ("has a file where a folder is needed", "Remove that file, or use another folder."),
    errno.ENOENT: ("cannot be made there", "Check the folders above it, or use another one."),
    errno.EISDIR: ("has a folder where a file is needed", "Remove that folder, or use another one."),
    errno.ENAMETOOLONG: ("cannot hold a name this long", "Shorten the ids of stages."),
}
_RETRYABLE_ERRNO = {errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY}


@contextlib.contextmanager
def border(url: str, name: str = "", *, reading: bool = False, writing: bool = False) -> Iterator[None]:
    """Raise MissingError or StoreError, caused by the foreign error, for any error of the store at `url` inside.

    With `reading`, a folder in place of a file, or a file in place of a folder, means that the object is missing.
    With `writing`, nothing counts as missing: the folders would have been created.
    """
    try:
        yield
    except (TreadleError, MemoryError):
        raise
    except OSError as error:
        if (error.errno == errno.ENOENT and not writing) or (reading and error.errno in (errno.EISDIR, errno.ENOTDIR)):
            raise missing(url, name) from error
        if error.errno is None:
            raise _of_object_store(error, url, name) from error
        raise _of_file_system(error, url, name) from error
    except Exception as error:  # obstore's errors have no narrower common base
        raise _of_object_store(error, url, name) from error


def _of_file_system(error: OSError, url: str, name: str) -> StoreError:
    what, hint = _BY_ERRNO.get(
        error.errno or 0, (f"failed: {error.strerror or error}", "Check the disk and its mount.")
    )
    return StoreError(f"store {url} {what}{_at(name)}", hint, retryable=error.errno in _RETRYABLE_ERRNO)


def _of_object_store(error: Exception, url: str, name: str) -> TreadleError:
    text = f"{type(error).__name__}: {error}"
    if len(name) > _SHORT:
        text = text.replace(name, "")  # a stage may be called `timeout`, too
    if isinstance(error, FileNotFoundError) and not re.search(_NO_BUCKET, text):
        return missing(url, name)
    if found := _NO_CREDENTIALS.search(text):
        return StoreError(f"store {url} needs credentials: {found[1]}", "See `aws configure list` and `aws sso login`.")
    if found := _WRONG_REGION.search(text):
        hint = f'Write region = "{found[1]}" into the profile, or set AWS_REGION.'
        return StoreError(f"store {url} is in the region {found[1]}, and the request was signed for another", hint)
    for rule in _BY_TEXT:
        if re.search(rule.pattern, text):
            hint = rule.hint or _CREDENTIALS.get(url.partition(":")[0], "Set credentials") + _RIGHTS
            message = f"store {url} {rule.what}{_at(name)}"
            return StoreError(message, hint, retryable=rule.retryable, throttled=rule.throttled)
    first_line = str(error).partition("\n")[0]
    return StoreError(f"store {url} failed{_at(name)}: {first_line}", "The cause is below; check the URL and options.")


def missing(url: str, name: str) -> MissingError:
    """Return the error that every store raises for an object that does not exist."""
    return MissingError(f"store {url} has no object {name!r}", "It was never written, or was deleted since.")


def _at(name: str) -> str:
    return f" (at {name!r})" if name else ""
