"""Storage of bytes.

General layout: `store` (objects, behind one interface) with `multipart` (objects made in parts) and `store_errors`
(where foreign errors become treadle's); `input_files` (files that people read and write, by URI); `shared_memory`
(blocks of this host) with `page_pool` (files of removed blocks); `atomic_files` (a file appears whole or not at all);
`spool` (bytes between memory and disk); `request_counts` and `aws_config`.
"""
