"""Eight small workloads, done by treadle with everything durable and by its rivals, in one run on one machine.

General layout: `settings` (sizes, who is measured on what, the goals), `project/jobs.py` (the user's functions, the
same for everybody), `data` and `checks` (inputs, right answers), `rivals` (one module each; `rivals/treadle.py` is
ours, on `session`), `child` (one rival in its own environment, told what to do next), `measuring` (asks them in turn),
`__main__` (the run), `report`, `growth`, and `engine` (treadle as an engine of another harness).
"""
