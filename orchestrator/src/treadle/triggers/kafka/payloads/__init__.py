"""The value of `trigger.events`: how the records of a batch reach the run that they start.

`transfer_choice` chooses the way, after it has determined how long the topic keeps its records. `event_payloads` makes
the value. treadle.orchestrator.run_store.child_runs manages copies that runs pass on. Tasks read a
range, or the copy, in treadle.executors.runtime.event_source.
"""

from .event_payloads import Payloads as Payloads
from .transfer_choice import Topic as Topic
from .transfer_choice import ask_topic as ask_topic
from .transfer_choice import choose as choose
