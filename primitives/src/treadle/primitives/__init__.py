"""treadle's data: blocks, codec, stores, keys, folds, partitioning, formats. Public are its modules `channels` and
`errors`.
"""

__all__: list[str] = []
