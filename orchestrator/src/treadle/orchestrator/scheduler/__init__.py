"""The one scheduler with its events and instructions. Pure."""
