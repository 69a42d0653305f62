"""Where bytes are kept.

General layout: `store` (objects, behind one interface) with `streamed` (those made in parts) and `store_errors` (where
foreign errors become ours); `files` (what people read and write, by URI); `host` (shared memory) with `spares` (of what
was removed there); `whole_files` (a file is all there or not at all) and `spooled` (bytes between memory and disk).
"""
