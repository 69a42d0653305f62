"""Reuse of results between runs: the content key of each node, the results cached under it, and the differences of
runs.

content_key     the components of a node's data, and its key
key_difference  the first difference between two runs
cache_entries   results in the store
cache_lookup    a run takes over cached results
repair          replaces damaged objects of a run
stage_rerun     runs stages of a finished run again
"""
