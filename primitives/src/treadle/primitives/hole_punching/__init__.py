"""A path between two members that both cannot accept connections: both dial out at once (docs/nat.md)."""

from .attempt import NoPath as NoPath
from .attempt import PunchAttempt as PunchAttempt
from .establish import open_path as open_path
from .machine import Schedule as Schedule
from .machine import Traversal as Traversal
from .path_finder import Reacher as Reacher
from .port_reuse import ANY as ANY
from .reachability import Paths as Paths
