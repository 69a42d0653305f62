"""Who is measured: one module each, with a class `Rival` as in `interface`."""
