"""The shell around the state machines: one member for each process, its connections, and the thread that reads them."""
