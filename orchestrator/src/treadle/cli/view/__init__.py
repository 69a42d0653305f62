"""Presents runs to the user.

`progress` computes the progress of a run from its store, with `wide_segments`. `watch_output` shows it on a terminal or
as lines, with `live_terminal`. `watcher` follows a run to its end. `attempt_logs` presents errors and logs of attempts,
`datasets` records of a stage, `plan_text` plans, `costs` costs, `reuse_text` differences from another run, and `report`
a page in HTML.
"""
