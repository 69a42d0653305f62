"""What people see of runs.

General layout: `picture` (how far a run is, from its store) with `wide`; `screens` (that on a terminal, or as lines)
with `live`; `watcher` (a run to its end); `following` (errors and logs of attempts), `datasets` (records of a stage),
`plans`, `costs`, `reusing` (what differs from another run), `report` (a page).
"""
