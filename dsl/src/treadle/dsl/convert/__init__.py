"""A document in its other form: `python` writes a spec as calls of the builder; `document.writing` writes YAML.

General layout: `naming` (variables and imports), `source` (values and expressions as Python), `python` (statements).
"""
