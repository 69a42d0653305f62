"""Starts runs of deployed workflows, at most one for each id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from treadle.client.client import Runs
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.protocol.messages import TRIGGER
from treadle.orchestrator.run_requests.requests import NoSuchRun
from treadle.orchestrator.run_store.run_files import Submission
from treadle.primitives.errors import StoreError, UsageError

from .event_mapping import accepted
from .registry.registry import Registry
from .run_ids import label
from .start_requests import RunStarted, StartOrder


class RunStarter:
    """The Starter of an environment. Requests are checked before anything is written."""

    def __init__(self, client: Client, runs: Runs, registry: Registry, allow: Sequence[str] | None) -> None:
        """`allow`: URI prefixes that triggered runs may access (see `uri_policy`)."""
        self._client, self._runs, self._registry, self._allow = client, runs, registry, allow

    async def start(self, order: StartOrder) -> RunStarted:
        """See Starter.start."""
        try:
            submission = await asyncio.to_thread(self._prepare, order)
            new, memo = await self._runs.start_once(submission)
        except NoSuchRun as error:
            raise Unreachable(f"run {order.run} was there and is gone", "It is asked for again.") from error
        except StoreError as error:
            raise Unreachable(error.message, error.hint) from error
        return RunStarted(order.run, new, memo)

    def _prepare(self, order: StartOrder) -> Submission:
        try:
            return prepared(self._registry, order, self._allow)
        except UsageError:
            # Another owner of the partition may have cut a valid batch under the same id.
            known = self._runs.files(order.run).find(Submission, "spec")
            if known is None:
                raise
            return known

    async def active(self, workflow: str, trigger: str) -> int:
        """See Starter.active."""
        query = f"{TRIGGER} = '{label(workflow, trigger)}' AND ExecutionStatus = 'Running'"
        try:
            return (await self._client.count_workflows(query)).count
        except RPCError as error:
            raise Unreachable(f"Temporal does not count: {error.message}", "See: treadle doctor") from error

    async def wait(self, run: str) -> None:
        """See Starter.wait."""
        try:
            await self._runs.end(run)
        except NoSuchRun:
            return


def prepared(registry: Registry, order: StartOrder, allow: Sequence[str] | None) -> Submission:
    """The checked submission of the run. Raises NoSuchDeployment, StoreError, and UsageError for inputs that can never
    be accepted."""
    deployment = registry.deployment(order.workflow, order.version)
    submission = accepted(deployment, order.trigger, order.run, order.inputs, allow)
    memo = {**order.memo, "trigger": label(order.workflow, order.trigger), "version": order.version}
    return replace(submission, memo=memo, shared=registry.shared(deployment))


async def ensure_search_attribute(client: Client) -> None:
    """Register `TreadleTrigger` in the namespace if necessary. Raises Unreachable if this client may not."""
    try:
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
        if TRIGGER in listed.custom_attributes:
            return
        kinds = {TRIGGER: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
        request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds)
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        if error.status == RPCStatusCode.ALREADY_EXISTS:
            return
        raise Unreachable(
            f"the namespace {client.namespace} has no search attribute {TRIGGER}: {error.message}",
            f"Make it: temporal operator search-attribute create -n {client.namespace} --name {TRIGGER} --type Keyword",
        ) from error
