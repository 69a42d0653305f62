"""The package of a function: what a provider is given to run any task of treadle's.

General layout: `target` says for which machine, `wheels` brings what others wrote, `own` what treadle did, `build`
makes the zip of both, `image` the recipe of a container image where a zip is too small.
"""
