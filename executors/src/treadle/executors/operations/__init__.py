"""The operations of a program, one small function for each."""
