"""The package of a function, which a provider needs to run any treadle task.

`target` describes the machine. `dependency_wheels` fetches third-party wheels and `treadle_wheels` provides treadle's
own files; `build` makes the zip of both, or writes the recipe of a container image for packages that exceed a zip.
"""
