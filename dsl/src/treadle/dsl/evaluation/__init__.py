"""Schemas and expressions of users, evaluated on data of strangers within a budget of processor time.

General layout: `jobs` (what is evaluated; pure functions), `messages`, `worker` (a process that does jobs; the
kernel ends it when one exceeds its budget), `pool` (the workers of this process), `budget` (which jobs need a worker).
"""

from .budget import evaluate_within_budget as evaluate_within_budget
from .jobs import Unfit as Unfit
from .pool import EvaluatorLost as EvaluatorLost
