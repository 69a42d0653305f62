"""Events start runs. A trigger turns events into starts and holds no other state (docs/triggers.md)."""
