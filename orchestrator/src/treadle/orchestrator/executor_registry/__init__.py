"""From the tables of a profile to executors: `builtin_executors` has treadle's own kinds, `registry` the executors."""
