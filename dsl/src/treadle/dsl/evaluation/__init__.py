"""Evaluates users' schemas and expressions on untrusted data, within a budget of processor time.

Layout: `jobs` (pure functions), `messages`, `worker` (a process that runs jobs; the kernel ends it when a job exceeds
its budget), `pool` (the workers of this process), `budget` (which jobs need a worker).
"""

from .budget import evaluate_within_budget as evaluate_within_budget
from .jobs import Unfit as Unfit
from .pool import EvaluatorLost as EvaluatorLost
