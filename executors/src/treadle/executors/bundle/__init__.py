"""The project's code, content-addressed: built at submit, opened by workers.

General layout: `imports` and `build` (which modules it is made of), `open` (in a worker); `digests` (of functions) over
`definitions`, `reads`, `effects`, `project`, `reach`, `captured` and `distributions`.
"""
