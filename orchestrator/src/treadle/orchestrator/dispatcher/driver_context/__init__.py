"""The state of a driver process: its open runs, the slots that they share, the coordinator of its gangs."""
