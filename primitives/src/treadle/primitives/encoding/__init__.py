"""Values as bytes, and back.

General layout: `references` (identity and location of a block), `codec` (values of every kind) over `frames` (their
layout), `encoded_parts` (parts that are already bytes), `read_only` (values that a user function cannot change),
`decoding` (structs that are checked), `tabular` (arrays, tables and frames).
"""
