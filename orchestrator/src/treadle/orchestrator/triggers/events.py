"""What triggers handle. Tasks that read their run's records again decode them too: see treadle.primitives.events."""

from treadle.primitives.events import Event as Event
from treadle.primitives.events import Record as Record
from treadle.primitives.events.decode import RECORD_TYPE as RECORD_TYPE
from treadle.primitives.events.decode import Undecodable as Undecodable
from treadle.primitives.events.decode import binary as binary
from treadle.primitives.events.decode import decode as decode
from treadle.primitives.events.decode import event_of as event_of
from treadle.primitives.events.decode import event_time as event_time
from treadle.primitives.events.decode import parse_json as parse_json
from treadle.primitives.events.decode import rfc3339 as rfc3339
from treadle.primitives.events.decode import structured as structured
