"""The project's code as a content-addressed bundle: built at submission, unpacked by workers.

`import_graph` finds the modules, `build` makes the bundle, `unpack` opens it in a worker. `code_digest` computes
digests of functions, based on `module_definitions`, `name_reads`, `import_effects`, `project_files`,
`dependency_graph`, `closures` and `distributions`.
"""
