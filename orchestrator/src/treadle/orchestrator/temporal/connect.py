"""A client of the profile's Temporal: a cluster, or the embedded server, which is started when needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

from ..environment.connection_errors import Unreachable, unknown_namespace, unreachable
from ..environment.home import Home
from ..environment.profile import Profile, TemporalSettings, TlsSettings
from ..environment.profile_table import sdk_profile

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.converter import DataConverter
    from temporalio.envconfig import ClientConfigTLSDict, ClientConnectConfig

CONNECT_TIMEOUT = 10.0
"""Seconds. The SDK itself would wait far longer for a silent host."""


async def connect(
    profile: Profile,
    home: Home,
    *,
    environ: Mapping[str, str] = os.environ,
    start: bool = True,
) -> Client:
    """A client of the profile's Temporal with an existing namespace. Starts the embedded server when needed.

    `start` False: raises Unreachable if the embedded server does not run, for example as `treadle dev down` ends it.

    The client encrypts its messages under the home's deployment key. Raises Unreachable, and UsageError for an unusable
    key. The SDK's connection failures are converted only here.
    """
    from ..protocol.encryption import data_converter

    settings = await _connect_settings(profile, home, environ, start)
    converter = data_converter(sealing.load_or_create_key(home.key), home.former_keys())
    address = settings.setdefault("target_host", "localhost:7233")
    try:
        return await asyncio.wait_for(_checked_client(settings, converter), CONNECT_TIMEOUT)
    except TimeoutError:
        raise unreachable(address, "timed out") from None
    except (RuntimeError, ValueError) as error:
        raise unreachable(address, str(error)) from error


async def _checked_client(settings: ClientConnectConfig, converter: DataConverter) -> Client:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError, RPCStatusCode

    client = await Client.connect(**settings, data_converter=converter)
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        address = settings["target_host"]
        if error.status == RPCStatusCode.NOT_FOUND:
            raise unknown_namespace(address, client.namespace) from None
        # A key for workflows only may not describe the namespace. It need not.
        if error.status != RPCStatusCode.PERMISSION_DENIED:
            raise unreachable(address, f"{error.status.name.replace('_', '')}: {error.message}") from error
    return client


async def _connect_settings(
    profile: Profile, home: Home, environ: Mapping[str, str], start: bool
) -> ClientConnectConfig:
    if profile.temporal is None:
        from ..embedded.server import NAMESPACE, ensure_server, running_server

        server = await asyncio.to_thread(ensure_server if start else running_server, home)
        if server is None:
            raise Unreachable("the embedded Temporal server has ended", "The next command starts it.")
        return {"target_host": server.address, "namespace": NAMESPACE}
    if profile.temporal.config_profile is not None:
        return sdk_profile(profile.temporal.config_profile, environ).to_client_connect_config()
    return _own_settings(profile.temporal, home)


def _own_settings(temporal: TemporalSettings, home: Home) -> ClientConnectConfig:
    from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS

    tls = ClientConfigTLS.from_dict(_tls_dict(temporal.tls)) if temporal.tls else None
    key = home.secret(temporal.api_key_secret) if temporal.api_key_secret else None
    own = ClientConfigProfile(address=temporal.address, namespace=temporal.namespace, api_key=key, tls=tls)
    try:
        return own.to_client_connect_config()
    except OSError as error:
        raise UsageError(f"a TLS file of the profile cannot be read: {error}", "Mend its path.") from error


def _tls_dict(tls: TlsSettings) -> ClientConfigTLSDict:
    paths = {
        "server_ca_cert": tls.server_ca_cert_path,
        "client_cert": tls.client_cert_path,
        "client_key": tls.client_key_path,
    }
    found: dict[str, Any] = {key: {"path": str(path.expanduser())} for key, path in paths.items() if path is not None}
    if tls.server_name is not None:
        found["server_name"] = tls.server_name
    found["disabled"] = bool(tls.disabled)
    return found  # type: ignore[return-value]
