"""The rivals: one module each, with a class `Rival` as in `interface`."""
