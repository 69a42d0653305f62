"""The state of a driver process: its open runs and the slots that they share."""
