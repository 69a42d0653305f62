"""Pure decisions: the partition that runs next, and the consequence of an ended attempt. The clock is passed in."""
