"""doctor, for triggers: checks the prerequisites of exactly one run for each event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from treadle.primitives.errors import TreadleError

from .common import formatting
from .common.environment import Environment, need

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.triggers.kafka.offsets import KafkaPositions

RETENTION_REFUSED, RETENTION_LEAST = 3.0, 7.0
"""Days. An event that is delivered again after Temporal has forgotten its run starts a second one. A run that is no
longer listed cannot be resumed."""


class Check(Struct, frozen=True):
    """The result of one check."""

    name: str
    state: Literal["ok", "warning", "failed"]
    about: str
    hint: str = ""


def triggers_deployed(env: Environment) -> int:
    return sum(len(one.spec.triggers) for one in env.registry.deployments())


def retention(days: float, triggers: int) -> Check:
    """Check the retention of closed runs in the namespace."""
    if days < RETENTION_REFUSED and triggers:
        hint = f"Triggers need {RETENTION_REFUSED:g} days, better {RETENTION_LEAST:g}: an event that comes again after "
        hint += "its run was forgotten starts a second one.\nChange it: temporal operator namespace update --retention"
        return Check("retention", "failed", f"{days:g} days", hint)
    short = days < RETENTION_LEAST
    hint = f"Closed runs vanish after {days:g} days, and cannot be resumed then." if short else ""
    return Check("retention", "warning" if short else "ok", f"{days:g} days", hint)


async def search_attribute(client: Client, triggers: int) -> Check:
    """Check the search attribute, which counts the runs of a trigger."""
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
    from temporalio.service import RPCError

    from treadle.orchestrator.protocol.messages import TRIGGER

    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        known = (await client.operator_service.list_search_attributes(request)).custom_attributes
    except RPCError:
        return Check("attribute", "warning", f"unknown whether {TRIGGER} exists: the key may not ask")
    if TRIGGER in known:
        return Check("attribute", "ok", f"{TRIGGER}: runs of triggers are counted by it")
    made = f"treadle triggers makes it, or: temporal operator search-attribute create --name {TRIGGER} "
    made += f"--type Keyword -n {client.namespace}"
    return Check("attribute", "warning" if triggers else "ok", f"no {TRIGGER} yet", made if triggers else "")


def kafka(env: Environment) -> Iterator[Check]:
    """Check that each connection of the profile responds, and grants deployed triggers their rights."""
    names = sorted(env.profile.kafka)
    if not names:
        return
    need("confluent_kafka")
    from treadle.triggers.kafka.offsets import KafkaPositions

    positions = KafkaPositions(env.home, env.profile)
    broken: set[str] = set()
    for name in names:
        try:
            brokers, topics = positions.size(name)
        except TreadleError as error:
            broken.add(name)
            yield Check("kafka", "failed", error.message, error.hint)
        else:
            about = f"{formatting.counted(brokers, 'broker')}, {formatting.counted(topics, 'topic')}"
            yield Check("kafka", "ok", f"Kafka connection {name}: {about}")
    yield from _rights(env, positions, broken)


def _rights(env: Environment, positions: KafkaPositions, broken: set[str]) -> Iterator[Check]:
    """Check the rights of deployed triggers that read topics, except on connections that do not respond."""
    from treadle.triggers.kafka.reader_settings import reading_of

    for deployment in env.registry.deployments():
        for name, trigger in sorted(deployment.spec.triggers.items()):
            reading = reading_of(trigger)
            if reading is None or reading.connection in broken:
                continue
            try:
                positions.check_rights(deployment, name, env.key)
            except TreadleError as error:
                yield Check("kafka", "failed", error.message, error.hint)
            else:
                yield Check("kafka", "ok", f"{deployment.workflow}.{name}: the user has the rights it needs")


def hooks(env: Environment) -> Iterator[Check]:
    """Check that the secrets for signatures of deployed webhooks exist."""
    from treadle.dsl.triggers import ObjectTrigger, WebhookTrigger

    for deployment in env.registry.deployments():
        for name, trigger in deployment.spec.triggers.items():
            signing = trigger.webhook if isinstance(trigger, ObjectTrigger) else trigger
            secret = getattr(signing, "secret", None) if isinstance(trigger, ObjectTrigger | WebhookTrigger) else None
            if secret is None:
                continue
            label = f"{deployment.workflow}.{name}"
            try:
                env.home.secret(secret)
            except TreadleError as error:
                yield Check("hook", "failed", f"{label}: {error.message}", error.hint)
            else:
                yield Check("hook", "ok", f"{label}: its secret is there")
