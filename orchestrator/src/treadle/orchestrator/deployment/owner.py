"""The profile that owns a deployed resource. Pure.

The owner is a digest of the profile's name under the deployment key, so no other home has the same owner. It is a tag
on Lambda and in IAM, and an annotation on OpenWhisk. The profile's name is written next to it for people.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

OWNER, PROFILE = "treadle:owner", "treadle:profile"
_DIGITS = 32


class Owner(Struct, frozen=True):
    """A profile of one deployment key."""

    id: str = ""
    profile: str = ""

    @property
    def tags(self) -> dict[str, str]:
        return {OWNER: self.id, PROFILE: self.profile}

    def has(self, tags: Mapping[str, Any]) -> bool:
        """Returns whether a resource with these tags belongs to it."""
        return tags.get(OWNER) == self.id

    def check(self, resource: str, tags: Mapping[str, Any], setting: str) -> None:
        """Raises UsageError for a resource of another owner. `setting`: the key of the table that chooses its name."""
        if self.has(tags):
            return
        whose = f"to profile {tags.get(PROFILE)!r} of another home" if OWNER in tags else "to no profile of treadle"
        if OWNER in tags and tags.get(PROFILE) != self.profile:
            whose = f"to profile {tags.get(PROFILE)!r}"
        raise UsageError(
            f"{resource} belongs {whose}, not to profile {self.profile!r}",
            f'Give this profile other names with `{setting} = "..."` in its table, or take it over with --adopt.',
        )


def owner_of(key: bytes, profile: str) -> Owner:
    """`key`: the deployment key."""
    own = sealing.purpose_key(key, b"treadle functions")
    return Owner(hmac.digest(own, profile.encode(), "sha256").hex()[:_DIGITS], profile)
