"""The plan of a run: the graph of segments, made by the planner and read by all other parts."""
