"""The choice between a call for each task and resident functions, for each segment, with a reason. Pure.

Resident functions hold their blocks and serve them to each other, so the blocks do not pass through the store. Only
resident functions can read such blocks, so a segment's blocks stay with them only if they have no other reader.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from treadle.dsl.units import format_duration, format_size
from treadle.executors.interface import Capabilities
from treadle.executors.program import Discard
from treadle.executors.resident import MEMBERS

from ..plan.plan import Segment, StateData
from .transport import RunLocation

STATE = "state"
"""Represents a loop's states among the nodes whose blocks stay with members, since a state's blocks may."""
_SHARE = 2
"""Blocks may fill one part in this many of the members' temporary folders."""


class Choice(NamedTuple):
    """The chosen segment, or (`refused`) the reason why the requested exchange is impossible."""

    segment: Segment
    refused: str = ""


def choose(segment: Segment, readers: frozenset[str], held: Set[str], site: RunLocation) -> Choice:
    """`readers`: executors that read its blocks (see `reader`). `held`: nodes whose blocks stay with members."""
    name = segment.policy.executor
    plain, can = site.executors[name], site.executors.get(name + MEMBERS)
    wanted = bool(readers) and not isinstance(segment.tail, Discard)
    if can is None:
        asked = wanted and segment.policy.exchange == "direct" and not plain.shares_host and bool(plain.sizes)
        return Choice(segment, f"functions of {name} have no coordinator to join" if asked else "")
    obstacle = _why_not_at_all(segment, can)
    against = obstacle or _why_not_directly(segment, name, readers, can)
    if wanted and not against:
        return Choice(_holding(segment, name))
    if wanted and segment.policy.exchange == "direct":
        return Choice(segment, against)
    why = "" if obstacle else _why_staying(segment, held, can)
    return Choice(_staying(segment, name, why) if why else _calling(segment, obstacle, can))


def gang_place(site: RunLocation, executor: str) -> Capabilities:
    """The capabilities of the workers that would run a gang: functions do so as residents only."""
    can = site.executors[executor]
    return can if can.gangs else site.executors.get(executor + MEMBERS, can)


def reader(segment: Segment, site: RunLocation) -> str:
    """The executor that reads for the segment: the resident functions, if the segment may run on them."""
    stay = segment.policy.executor + MEMBERS
    can = site.executors.get(stay)
    return segment.policy.executor if can is None or _why_not_at_all(segment, can) else stay


def _why_not_at_all(segment: Segment, can: Capabilities) -> str:
    timeout = segment.policy.timeout
    if 0 < can.time_limit < timeout:
        most, asked = format_duration(can.time_limit), format_duration(timeout)
        return f"a function that stays works for {most}, and `timeout` is {asked}"
    return ""


def _why_not_directly(segment: Segment, name: str, readers: frozenset[str], can: Capabilities) -> str:
    if segment.policy.exchange == "storage":
        return "exchange: storage was asked for"
    if not can.peers:
        return f"functions of {name} do not reach each other (members.direct)"
    if name in readers:
        return f"a stage that reads its blocks has a `timeout` for which functions of {name} do not stay"
    if strangers := sorted(one.removesuffix(MEMBERS) for one in readers - {name + MEMBERS}):
        return f"{' and '.join(strangers)} read{'s' * (len(strangers) == 1)} its blocks too"
    if segment.policy.durability == "segment":
        return "durability: segment, which copies blocks from a host that this driver reaches"
    room = can.slots * can.temporary // _SHARE
    if room and segment.estimate > room:
        return f"about {format_size(segment.estimate)} may not fit the {format_size(room)} that members have for blocks"
    return ""


def _why_staying(segment: Segment, held: Set[str], can: Capabilities) -> str:
    if segment.policy.gang:
        return "a gang's members exchange values while they run"
    if can.peers and not held.isdisjoint({*segment.data, *_states(segment)}):
        return "they read what others of them hold"
    if not segment.partitions or segment.partitions > can.slots:
        return f"{segment.partitions or 'as many'} partitions on {can.slots} slots: each starts once"
    return ""


def _states(segment: Segment) -> list[str]:
    """[STATE] if the segment reads a state of the loop around it, otherwise empty."""
    read = [getattr(segment.feed, "data", None), *(shipped.data for shipped in segment.broadcasts.values())]
    return [STATE for ref in read if isinstance(ref, StateData)]


def _holding(segment: Segment, name: str) -> Segment:
    durable = "; durability: task, so each also goes to the store" if segment.policy.durability == "task" else ""
    blocks = f"blocks stay with the functions that make them, and {name} pulls them over TCP{durable}"
    reasons = (*segment.reasons[:-1], f"functions stay: what they make is read by {name} only", blocks)
    moved = msgspec.structs.replace(segment, put="host", reasons=reasons)
    return _at(moved, name + MEMBERS)


def _staying(segment: Segment, name: str, why: str) -> Segment:
    return _at(_because(segment, f"functions stay: {why}"), name + MEMBERS)


def _calling(segment: Segment, obstacle: str, can: Capabilities) -> Segment:
    enough = f"{segment.partitions} partition{'s' * (segment.partitions != 1)} on {can.slots} slots"
    return _because(segment, f"a call for each task: {obstacle or enough}")


def _because(segment: Segment, reason: str) -> Segment:
    """The segment with the reason inserted before the last one, which is about its blocks."""
    return msgspec.structs.replace(segment, reasons=(*segment.reasons[:-1], reason, *segment.reasons[-1:]))


def _at(segment: Segment, executor: str) -> Segment:
    return msgspec.structs.replace(segment, policy=msgspec.structs.replace(segment.policy, executor=executor))
