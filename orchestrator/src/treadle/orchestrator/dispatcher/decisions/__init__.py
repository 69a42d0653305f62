"""Which partition runs next, and what an ended attempt means. Pure: the clock is passed in."""
