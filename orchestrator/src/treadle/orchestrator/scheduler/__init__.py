"""The one scheduler and what it speaks: events in, instructions out. Pure."""
