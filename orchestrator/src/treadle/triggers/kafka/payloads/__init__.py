"""The value of `trigger.events`: how the records of a batch reach the run that they start.

`transfer_choice` chooses the way (pure), `event_payloads` makes the value, and `topic_retention` determines how long a
topic keeps its records. treadle.orchestrator.run_store.event_copies manages copies that runs pass on. Tasks read a
range, or the copy, in treadle.executors.runtime.event_source.
"""

from .event_payloads import Payloads as Payloads
from .topic_retention import ask_topic as ask_topic
from .transfer_choice import Topic as Topic
from .transfer_choice import choose as choose
