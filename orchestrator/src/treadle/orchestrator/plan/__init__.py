"""The plan of a run: the graph of segments that the planner makes and everything else reads."""
