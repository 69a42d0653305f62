"""Start, find, watch, resume and steer runs, for programs and for the command line.

`client` has the operations. `submission` prepares a run from a document, `run_lookup` finds a run by name, and
`run_views` reads runs from Temporal. `garbage_collection` removes stored data; `testing` executes whole runs inside one
process.
"""
