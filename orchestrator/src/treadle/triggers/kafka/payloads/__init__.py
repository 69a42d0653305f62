"""What `trigger.events` is worth: how the records of a batch reach the run that they start.

General layout: `choice` (which way, and why; pure), `payloads` (the value), `topics` (how long a topic keeps them). The
copies that runs hand on are in treadle.orchestrator.run_store.event_copies; tasks read a range, or the copy, in
treadle.executors.runtime.event_source.
"""

from .event_payloads import Payloads as Payloads
from .topic_retention import ask_topic as ask_topic
from .transfer_choice import Topic as Topic
from .transfer_choice import choose as choose
