"""Converts a document to its other form: `python` writes a spec as builder calls; `document.writing` writes YAML.

Layout: `naming` (variables and imports), `source` (values and expressions as Python), `python` (statements).
"""
