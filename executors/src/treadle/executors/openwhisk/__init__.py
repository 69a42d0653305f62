"""Apache OpenWhisk as a provider of functions (extra `openwhisk`).

General layout: `answers` says what a reply of its API means (pure), `invoker` makes the calls, `entry` is what runs in
the action. Documents cited are those of apache/openwhisk.
"""
