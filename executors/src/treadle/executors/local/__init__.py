"""The executor that runs processes on this machine."""
