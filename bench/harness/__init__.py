"""What every measurement shares: the work and its right answers, members as processes, the machine's facts.

Imports the standard library and numpy only, since it runs in the rivals' environment too.
"""
