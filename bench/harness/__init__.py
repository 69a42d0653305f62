"""The parts that all measurements share: the work and its right answers, members as processes, facts about the machine.

Imports the standard library and numpy only, since it runs in the rivals' environment too.
"""
