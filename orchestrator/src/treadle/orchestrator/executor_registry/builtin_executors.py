"""The kinds of executor that come with treadle, and the settings of their tables; docs/executors.md has examples of
each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

from msgspec import Struct, structs
from pydantic import Field, ValidationError, model_validator

from treadle.dsl.units import Duration, Size
from treadle.executors.functions.invoker import MEGABYTE
from treadle.executors.interface import Executor
from treadle.executors.memory_limit import processors
from treadle.executors.plugin import Place
from treadle.executors.worker.environment import secret_variable, worker_environment
from treadle.primitives import sealing
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.input_files import is_local

from ..deployment.settings import LambdaDeploySettings, OpenWhiskDeploySettings
from ..environment.profile import Slots, Table, reasons

if TYPE_CHECKING:
    from treadle.executors.functions.executor import FunctionExecutor
    from treadle.executors.functions.invoker import Invoker
    from treadle.executors.openwhisk.client import OpenWhiskClient

S = TypeVar("S", bound=Table)
MOST_CALLS = 100_000
"""Maximum of function calls at a time. Each call needs a slot."""

# -- tables ----------


class LocalSettings(Table):
    """Processes on the driver's machine, which may emulate a provider of functions."""

    slots: Slots | None = None
    """Tasks at a time. None: the number of processors."""
    memory: Size | None = None
    """Bytes for all slots together. None: the machine's memory."""
    emulate: Literal["lambda", "openwhisk"] | None = None
    """Keep the limits and the behaviour of this provider."""
    sizes: tuple[Annotated[int, Field(ge=192)], ...] | None = None
    """With `emulate`: megabytes of the functions, as deployed."""
    secrets: tuple[str, ...] = ()
    """With `emulate`: names of the secrets deployed with the functions."""

    @model_validator(mode="after")
    def _one_sort(self) -> LocalSettings:
        if self.emulate and self.memory is not None:
            raise ValueError("memory: with emulate, the sizes of the functions say it; give sizes")
        if self.emulate == "openwhisk" and self.sizes and min(self.sizes) < 256:
            raise ValueError("sizes: actions of OpenWhisk have at least 256")
        if not self.emulate and (self.sizes or self.secrets):
            raise ValueError("sizes and secrets are for emulate")
        return self


class IsolatedSettings(Table):
    """A fresh process for every attempt, which shares only the store with the driver."""

    slots: Slots = 2
    memory: Size = 0
    """Bytes that one attempt may allocate. 0: no limit."""
    secrets: tuple[str, ...] = ()
    """Names of the secrets that attempts may use."""


class MemberSettings(Table):
    """Settings for resident functions, which join this driver's coordinator (docs/members.md)."""

    coordinator: str
    """The address that functions use, such as `tls://driver.example.com:7171`; `tcp://127.0.0.1:0` if they run here."""
    listen: str = ""
    """The address at which this driver listens, if it is another one."""
    direct: bool | None = None
    """True: members keep their blocks for each other. None: true for actions of OpenWhisk, false for functions of
    Lambda."""
    inbound: bool | None = None
    """True: members accept connections. None: true for actions of OpenWhisk, false for functions of Lambda."""
    idle: Duration = 60.0
    """Seconds for which a member without a task is kept."""


class LambdaSettings(Table):
    """Functions on AWS Lambda, as deployed by `treadle deploy lambda`. Credentials: the AWS tools' own."""

    function: Annotated[str, Field(min_length=1)] = "treadle"
    """The prefix of their names."""
    sizes: tuple[int, ...] = (1024, 2048, 4096)
    """Megabytes. There is a function of each size."""
    concurrency: Annotated[int, Field(ge=1, le=MOST_CALLS)] = 100
    """Calls under way at a time."""
    region: str = ""
    """Empty: the region of the AWS tools."""
    asynchronous: bool = False
    """True: Lambda queues the calls, and their reports come through the store."""
    timeout: Duration = 900.0
    """The timeout of the functions in seconds."""
    endpoint: str = ""
    """The URL of an emulator of Lambda."""
    files: bool = False
    """True: the functions run here and see the files of this machine."""
    members: MemberSettings | None = None
    deploy: LambdaDeploySettings = LambdaDeploySettings()


class OpenWhiskSettings(Table):
    """Actions on Apache OpenWhisk, as deployed by `treadle deploy openwhisk`."""

    endpoint: str
    """For example `https://openwhisk.example.com`."""
    key_secret: str = "openwhisk"
    """Name of the secret that holds the key of the namespace, `UUID:KEY`."""
    ca: Path | None = None
    """PEM file of the authority that signed the endpoint's certificate. None: public authorities."""
    allow_http: bool = False
    """True: the key may be sent unencrypted, as between containers of one host."""
    namespace: str = "_"
    action: Annotated[str, Field(min_length=1)] = "treadle"
    """The prefix of their names."""
    sizes: tuple[Annotated[int, Field(ge=256)], ...] = (256, 512)
    """Megabytes. There is an action of each size. 192 MB of each are for OpenWhisk's proxy and for treadle."""
    concurrency: Annotated[int, Field(ge=1, le=MOST_CALLS)] = 30
    """Calls at a time. A namespace may have 30 on the standalone server, and 100 on an unchanged installation."""
    timeout: Duration = 300.0
    """The timeout of the actions in seconds."""
    files: bool = False
    """True: the actions run here and see the files of this machine."""
    members: MemberSettings | None = None
    deploy: OpenWhiskDeploySettings = OpenWhiskDeploySettings()


# -- executors ----------


def open_local(settings: LocalSettings, place: Place) -> Executor:
    from treadle.executors.local.executor import LocalExecutor

    if settings.emulate:
        return _emulated(settings.emulate, settings, place)
    slots = _slots(settings)
    share = settings.memory // slots if settings.memory else None
    return LocalExecutor(
        run_key=place.run_key,
        slots=slots,
        memory=share,
        host_root=place.host_root or None,
        secrets=place.secret,
        environment=place.environment,
    )


def open_isolated(settings: IsolatedSettings, place: Place) -> Executor:
    from treadle.executors.isolated.executor import IsolatedExecutor

    return IsolatedExecutor(
        key_file=place.key_file,
        slots=settings.slots,
        memory=settings.memory,
        environment=worker_environment(_variables(place)) | _secrets(settings.secrets, place),
    )


def open_lambda(settings: LambdaSettings, place: Place) -> Executor:
    from treadle.executors.aws.invoker import LambdaInvoker

    invoker = LambdaInvoker(
        settings.function,
        settings.sizes,
        region=settings.region,
        concurrency=settings.concurrency * (2 if settings.members else 1),
        asynchronous=settings.asynchronous,
        seconds=settings.timeout,
        endpoint=settings.endpoint,
    )
    invoker.limits = structs.replace(invoker.limits, temporary=settings.deploy.temporary * MEGABYTE)
    executor = _functions("lambda", invoker, settings.concurrency, place, files=settings.files)
    if settings.deploy.machine != "x86_64":
        executor.capabilities = structs.replace(executor.capabilities, machine=settings.deploy.machine)
    return _staying(executor, settings, place, inbound=False)


def open_openwhisk(settings: OpenWhiskSettings, place: Place) -> Executor:
    from treadle.executors.openwhisk.invoker import OpenWhiskInvoker

    client = openwhisk_client(settings, place.secret)
    invoker = OpenWhiskInvoker(client, settings.action, settings.sizes, seconds=settings.timeout)
    executor = _functions("openwhisk", invoker, settings.concurrency, place, files=settings.files)
    return _staying(executor, settings, place, inbound=True)


def openwhisk_client(settings: OpenWhiskSettings, secret: Callable[[str], str]) -> OpenWhiskClient:
    """The client of a table. Raises UsageError for impossible settings, or for a missing secret."""
    from treadle.executors.openwhisk.client import OpenWhiskClient

    return OpenWhiskClient(
        settings.endpoint,
        secret(settings.key_secret),
        namespace=settings.namespace,
        connections=(4 if settings.members else 2) * settings.concurrency,
        allow_http=settings.allow_http,
        ca=settings.ca,
    )


def _emulated(provider: str, settings: LocalSettings, place: Place) -> Executor:
    """An executor with the limits of a provider.

    Local files count as reachable only with a local store. With a store that the provider reaches too, a plan that
    reads local files would pass here and fail there.
    """
    from treadle.executors.emulation.invoker import ParityInvoker
    from treadle.executors.emulation.provider_limits import EMULATIONS

    emulation = EMULATIONS[provider]
    if settings.sizes:
        limits = structs.replace(emulation.limits, memory=tuple(size * MEGABYTE for size in sorted(settings.sizes)))
        emulation = structs.replace(emulation, limits=limits)
    environment = {**_variables(place), **_secrets(settings.secrets, place)}
    invoker = ParityInvoker(emulation, sealing.load_or_create_key(place.key_file), environment)
    return _functions(provider, invoker, _slots(settings), place, files=is_local(place.store))


def _slots(settings: LocalSettings) -> int:
    return settings.slots or processors()


def _functions(provider: str, invoker: Invoker, slots: int, place: Place, *, files: bool) -> FunctionExecutor:
    from treadle.executors.functions.executor import FunctionExecutor

    executor = FunctionExecutor(provider, invoker, key_file=place.key_file, slots=slots)
    limits = invoker.limits
    executor.capabilities = structs.replace(
        executor.capabilities, files=files, temporary=limits.temporary, sizes=limits.memory
    )
    return executor


def _staying(
    executor: FunctionExecutor, settings: LambdaSettings | OpenWhiskSettings, place: Place, *, inbound: bool
) -> Executor:
    """The executor with its package's missing modules noted, and with resident functions if the table has `members`."""
    deploy, members = settings.deploy, settings.members
    known = {"pyarrow": deploy.arrow, "confluent_kafka": deploy.kafka}
    lacks = () if deploy.image else tuple(name for name, there in known.items() if not there)
    executor.capabilities = structs.replace(executor.capabilities, lacks=lacks)
    if members is not None:
        from treadle.executors.resident.coordinator_host import Meeting
        from treadle.executors.resident.executor import MemberExecutor

        direct = inbound if members.direct is None else members.direct
        inbound = inbound if members.inbound is None else members.inbound
        meeting = Meeting(members.coordinator, members.listen, direct, members.idle, inbound)
        staying = MemberExecutor(executor.means, meeting, key_file=place.key_file, slots=settings.concurrency)
        files = settings.files
        staying.capabilities = structs.replace(staying.capabilities, files=files, lacks=lacks)
        executor.members = staying
    return executor


def _variables(place: Place) -> Mapping[str, str]:
    return os.environ if place.environment is None else place.environment


def _secrets(names: Iterable[str], place: Place) -> dict[str, str]:
    return {secret_variable(name): place.secret(name) for name in names}


# -- kinds ----------


class BuiltIn(Struct, Generic[S], frozen=True):
    """An `ExecutorKind` whose table is a Pydantic model."""

    model: type[S]
    make: Callable[[S, Place], Executor]

    def settings(self, table: Mapping[str, Any]) -> S:
        try:
            return self.model.model_validate(dict(table))
        except ValidationError as error:
            raise UsageError(reasons(error), "Mend the table.") from None

    def open(self, settings: S, place: Place) -> Executor:
        return self.make(settings, place)


KINDS: Mapping[str, BuiltIn[Any]] = {
    "local": BuiltIn(LocalSettings, open_local),
    "isolated": BuiltIn(IsolatedSettings, open_isolated),
    "lambda": BuiltIn(LambdaSettings, open_lambda),
    "openwhisk": BuiltIn(OpenWhiskSettings, open_openwhisk),
}
