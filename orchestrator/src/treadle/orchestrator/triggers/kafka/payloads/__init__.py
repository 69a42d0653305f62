"""What `trigger.events` is worth: how the records of a batch reach the run that they start.

General layout: `choice` (which way, and why; pure), `payloads` (the value), `topics` (how long a topic keeps them). The
copies that runs hand on are in treadle.orchestrator.copied_events; tasks read a range, or the copy, in
treadle.executors.runtime.events.
"""

from .choice import Topic as Topic
from .choice import choose as choose
from .payloads import Payloads as Payloads
from .topics import ask_topic as ask_topic
