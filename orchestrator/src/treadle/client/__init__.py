"""Start, find, watch, resume and steer runs, for programs and for the command line.

General layout: `client` (the verbs), `submission` (from a document to a run that can start), `run_lookup` (from a name
to a run), `run_views` (runs as Temporal shows them), `garbage_collection`, `testing` (whole runs inside one process).
"""
