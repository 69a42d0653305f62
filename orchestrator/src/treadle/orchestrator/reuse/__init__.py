"""What a run may take over from another: the content key of each node, results kept under it, and what differs.

General layout: `components` (what makes a node's data, and its key), `compare` (the first thing that
differs between two runs), `entries` (results in the store), `opening` (a run takes over what is kept), `again` (a
person has stages of a run run again).
"""
