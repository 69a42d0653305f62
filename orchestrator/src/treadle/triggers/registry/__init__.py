"""Deployed workflows: what a trigger may start, in versions that never change.

General layout: `deployment` (what is kept of one version), `registry` (where it is kept, and who wins).
"""
