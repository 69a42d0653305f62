"""Values as bytes, and back.

General layout: `references` (what a block is, and where), `codec` (values of every kind) over `frames` (their layout),
`encoded` (what is bytes already), `frozen` (arrays that nobody may write to), `decoding` (structs that are checked).
"""
