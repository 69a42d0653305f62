"""What `trigger.events` is worth: how the records of a batch reach the run that they start.

General layout: `choice` (which way; pure), `payloads` (the value), `copies` (of the records, where one is
made), `topics` (how long a topic keeps them). Tasks read a range, or the copy, in treadle.executors.runtime.events.
"""

from .choice import Topic as Topic
from .choice import choose as choose
from .copies import hand_over as hand_over
from .payloads import Payloads as Payloads
from .topics import ask_topic as ask_topic
