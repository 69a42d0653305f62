"""Calls AWS Lambda functions with boto3."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.stores.aws_config import aws_region

from ..functions.invoker import Answer, Limits, NotRun, Throttled
from .responses import BrokenPackage, answer_of
from .thread_pool import DaemonThreads

# Lambda developer guide, Lambda quotas
REQUEST = RESPONSE = 6 << 20
ASYNCHRONOUS_REQUEST = 1 << 20
SECONDS = 900.0
SMALLEST, LARGEST = 128, 10_240
"""Bounds of a function's memory, in megabytes."""
TEMPORARY = 512
"""Default size of /tmp, in megabytes."""

_QUEUED = 60.0
"""Seconds: MaximumEventAgeInSeconds, which deployment sets to its minimum (PutFunctionEventInvokeConfig)."""
_ANSWER_SECONDS = 30.0
"""Seconds that the invoker waits for an answer beyond the function's time limit."""
_THROTTLED = (
    # Invoke, errors: status 429, and errors of the network or of functions that are not ready yet
    *("TooManyRequestsException", "EC2ThrottledException", "ENILimitReachedException", "ENINotReadyException"),
    *("SubnetIPAddressLimitReachedException", "ResourceNotReadyException", "ResourceConflictException"),
    *("SnapStartNotReadyException", "CodeArtifactUserPendingException", "ThrottlingException", "RequestLimitExceeded"),
)
_TOO_MANY_AT_ONCE = ("ConcurrentInvocationLimitExceeded", "ReservedFunctionConcurrentInvocationLimitExceeded")
"""`Reason` of TooManyRequestsException (Lambda API reference)."""
_UNFIT = (
    # Invoke, errors of status 502 that persist until the function, its role or its network is changed
    *("InvalidRuntimeException", "InvalidZipFileException", "EC2AccessDeniedException"),
    *("InvalidSecurityGroupIDException", "InvalidSubnetIDException"),
    *("KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException"),
)
_FORBIDDEN = (
    *("AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "InvalidSignatureException"),
    *("ExpiredTokenException", "ExpiredToken"),
)


def function_name(prefix: str, megabytes: int) -> str:
    """The name of the function with this memory size; each size is deployed as a function of its own."""
    return f"{prefix}-{megabytes}"


class LambdaInvoker:
    """Calls `<function>-<megabytes>`, where the size is one of `sizes`.

    A synchronous call (`RequestResponse`) keeps a connection open and returns the answer and how the function ended. An
    asynchronous call (`Event`) is queued by Lambda, which runs it once or, at times, twice; its reports are in the
    store. `endpoint` is for emulators of Lambda.
    """

    def __init__(
        self,
        function: str,
        sizes: Sequence[int],
        *,
        region: str = "",
        concurrency: int = 100,
        asynchronous: bool = False,
        seconds: float = SECONDS,
        endpoint: str = "",
    ) -> None:
        """`sizes`: in megabytes; `seconds`: the timeout set at deployment. The constructor makes no connection.

        Raises UsageError when boto3 is not installed, or for sizes that Lambda does not have.
        """
        if not sizes or not all(SMALLEST <= size <= LARGEST for size in sizes):
            raise UsageError(
                f"Lambda has functions of {SMALLEST} to {LARGEST} MB, not {', '.join(map(str, sizes)) or 'none'}",
                "Give the sizes that `treadle deploy lambda` made.",
            )
        self._function = function
        self._asynchronous = asynchronous
        self._concurrency = concurrency
        self._region, self._endpoint = region, endpoint
        self.limits = Limits(
            request=ASYNCHRONOUS_REQUEST if asynchronous else REQUEST,
            response=RESPONSE,
            seconds=min(seconds, SECONDS),
            memory=tuple(size << 20 for size in sorted(sizes)),
            temporary=TEMPORARY << 20,
            queued_seconds=_QUEUED if asynchronous else 0.0,
            repeats=asynchronous,
        )
        if find_spec("boto3") is None:
            raise UsageError("boto3 is not installed", "Install treadle-executors[aws].")
        self._open: _Open | None = None
        self._opening = asyncio.Lock()

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """See `Invoker.invoke`."""
        open_ = await self._opened()
        function = function_name(self._function, self.limits.size(memory) >> 20)
        call = functools.partial(self._invoke, open_.client, function, request)
        seconds += _ANSWER_SECONDS
        try:
            async with asyncio.timeout(None) as limit:  # set when a thread starts: abandoned calls may fill all threads
                return await open_.threads.run(call, lambda loop: limit.reschedule(loop.time() + seconds))
        except TimeoutError as error:
            late = f"no answer of {self._function} in {seconds:g} s"
            raise StoreError(late, "Nothing: what it left is looked for.", retryable=True) from error

    async def close(self) -> None:
        """See `Invoker.close`. Does not wait for running calls."""
        if self._open is not None:
            self._open.threads.close()
            self._open.client.close()
            self._open = None

    async def _opened(self) -> _Open:
        async with self._opening:
            if self._open is None:  # in a thread: creating a client takes a second, which must not block the driver
                self._open = await asyncio.to_thread(self._connect)
            return self._open

    def _connect(self) -> _Open:
        import boto3.session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},  # the dispatcher owns retries
            connect_timeout=10,
            read_timeout=self.limits.seconds + _ANSWER_SECONDS,
            max_pool_connections=self._concurrency,
            tcp_keepalive=True,  # Invoke: "for functions with a long timeout" idle connections may be cut
        )
        options = {"region_name": self._region or aws_region() or None, "endpoint_url": self._endpoint or None}
        try:
            client = boto3.session.Session().client("lambda", config=config, **options)
        except (BotoCoreError, ValueError) as error:  # ValueError: the endpoint is not a URL
            hint = "Set `region` in the profile, or AWS_REGION; and credentials as for the AWS command line."
            raise UsageError(f"Lambda cannot be called: {error}", hint) from error
        return _Open(client, DaemonThreads(self._concurrency, "lambda"))

    def _invoke(self, client: Any, function: str, request: bytes) -> Answer:
        from botocore.exceptions import BotoCoreError, ClientError

        kind = {"InvocationType": "Event"} if self._asynchronous else {"LogType": "Tail"}
        try:
            said = client.invoke(FunctionName=function, Payload=request, **kind)
            payload = said["Payload"].read()
        except ClientError as error:
            raise error_of_service(error, function) from error
        except BotoCoreError as error:
            raise _of_connection(error, function) from error
        if self._asynchronous:
            return Answer("accepted")
        try:
            return answer_of(payload, said.get("FunctionError", ""), _log(said))
        except BrokenPackage as error:
            hint = "Deploy the package again: treadle deploy lambda"
            raise UsageError(f"the function {function} cannot be loaded: {error}", hint) from error


class _Open(NamedTuple):
    client: Any
    threads: DaemonThreads


def _log(said: Any) -> bytes:
    import base64

    return base64.b64decode(said.get("LogResult", ""))


def error_of_service(error: Any, function: str) -> Exception:
    """Convert a botocore ClientError. Lambda has answered and did not run the call. (Invoke: "Error codes are reserved
    for errors that prevent your function from executing".)"""
    code = error.response.get("Error", {}).get("Code", "")
    about = error.response.get("ResponseMetadata", {})
    status = about.get("HTTPStatusCode", 0)
    text = f"{code}: {error.response.get('Error', {}).get('Message', '')}"
    if code in _THROTTLED or status == 429:
        seconds = _seconds(about.get("HTTPHeaders", {}).get("retry-after", ""))
        return Throttled(text, seconds, at_once=error.response.get("Reason", "") in _TOO_MANY_AT_ONCE)
    if code in ("ResourceNotFoundException", "404"):
        return UsageError(f"there is no Lambda function {function}", "Deploy it: treadle deploy lambda")
    if code in _FORBIDDEN or status in (401, 403):
        return UsageError(f"Lambda function {function} may not be called: {text}", "Allow lambda:InvokeFunction on it.")
    if (status >= 500 or status == 408) and code not in _UNFIT:  # 408: a file system or a snapshot timed out
        return NotRun(f"Lambda failed for a reason of its own ({text})", "Try again later.", retryable=True)
    hint = "See that `treadle deploy lambda` made the function, and that nothing changed it since."
    return UsageError(f"Lambda refused the call of {function}: {text}", hint)


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def _of_connection(error: Any, function: str) -> Exception:
    """Convert a connection error. Without a connection the call did not run; after a broken connection it may have
    run."""
    from botocore import exceptions

    not_run = (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError, exceptions.ProxyConnectionError)
    credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
    )
    if isinstance(error, credentials):
        return UsageError(f"Lambda cannot be called: {error}", "Set credentials as for the AWS command line.")
    if isinstance(error, not_run):
        return NotRun(f"Lambda cannot be reached: {error}", "Check region, endpoint and network.", retryable=True)
    return StoreError(
        f"the answer of {function} was lost: {error}", "Nothing: what it left is looked for.", retryable=True
    )
