"""The messages of client, workflow and driver in Temporal, with their encryption and their size limits."""
