"""Lifecycle events: drivers report the start and end of runs and stages, so that other workflows can follow.

events       the events, their ids, their JSON (CloudEvents; pure)
sinks        the destinations: a Kafka topic, a webhook
delivery     sends events, with retries; gives up in time, and records such events
emitter      the functions that activities call
"""
