"""A path between two members neither of which can accept connections: both dial out at once (docs/nat.md)."""

from .attempt import Attempt as Attempt
from .attempt import NoPath as NoPath
from .machine import Schedule as Schedule
from .machine import Traversal as Traversal
from .opening import open_path as open_path
from .paths import Paths as Paths
from .ports import ANY as ANY
from .reaching import Reacher as Reacher
