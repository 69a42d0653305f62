"""One module for each rival, with a class `Rival` (see `base`)."""
