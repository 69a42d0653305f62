"""What an isolated worker finds in its environment."""

from __future__ import annotations

from collections.abc import Mapping

from ..program import Task
from ..worker.environment import secret_variable

KEY_VARIABLE = "TREADLE_KEY_FILE"
"""Names the file with the deployment key, mode 0600."""
MEMORY_VARIABLE = "TREADLE_MEMORY"
"""Bytes an attempt may allocate when its task does not say; 0 or absent: no limit."""


def secrets_of(task: Task, environment: Mapping[str, str]) -> dict[str, str]:
    """Secrets of the task by name; what the environment lacks is left out."""
    variables = {name: secret_variable(name) for name in task.program.secrets}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}
