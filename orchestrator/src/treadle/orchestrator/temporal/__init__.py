"""The interpreter workflow, its activities, and the driver that serves them."""
