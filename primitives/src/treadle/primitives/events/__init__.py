"""Broker records and the CloudEvents 1.0 in them.

Two sides decode them: a trigger, to decide, and a task that reads the records of its run again.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
"""

from .records import Event as Event
from .records import Record as Record
