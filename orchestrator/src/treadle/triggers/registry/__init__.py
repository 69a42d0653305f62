"""Deployed workflows that triggers may start, in immutable versions.

`deployment` defines one version, `registry` stores the versions and resolves concurrent deployments.
"""
