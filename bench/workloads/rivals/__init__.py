"""One module for each that is measured; in it a class `Rival` (see `base`)."""
