"""treadle's data: blocks, codec, stores, keys, folds, partitioning, formats."""
