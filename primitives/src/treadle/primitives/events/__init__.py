"""Records as brokers give them, and the events in them, which are CloudEvents 1.0.

They stand here since two sides decode them: a trigger, to decide, and a task that reads the records of its run again.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from .records import Event as Event
from .records import Record as Record
