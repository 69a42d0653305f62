"""What triggers handle. Tasks that read their run's records again decode them too: see treadle.primitives.events."""

from treadle.primitives.events import Event as Event
from treadle.primitives.events import Record as Record
