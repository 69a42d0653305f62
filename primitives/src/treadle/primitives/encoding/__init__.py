"""Encodes values as bytes, and decodes them.

Layout:

    references      identity and location of a block
    codec, frames   values of every kind, and the layout of their bytes
    encoded_parts   parts that are already bytes
    read_only       values that a user function cannot change
    decoding        structs that are checked
    tabular         arrays, tables and frames
"""
