"""What a driver process has: the runs that it knows, the slots that they share, where its gangs meet."""
