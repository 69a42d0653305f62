"""Eight small workloads, done by treadle with everything durable and by its rivals, in one run on one machine.

settings         sizes, rivals of each workload, goals
project/jobs.py  the user's functions, the same for all rivals
data, checks     inputs, right answers
rivals           one module each; rivals/treadle.py uses `session`
child            one rival in its own environment, ordered by the runner
measuring        measures the rivals in turn
__main__         the run
report, growth   tables and a picture
engine           treadle as an engine of another harness
"""
