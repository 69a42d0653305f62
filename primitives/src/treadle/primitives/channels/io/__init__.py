"""The shell around the state machines: one member per process, its connections, and who reads them when."""
