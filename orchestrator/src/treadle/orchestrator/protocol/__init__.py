"""What client, workflow and driver say to each other through Temporal, and what is too large to be said."""
