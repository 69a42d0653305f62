"""What can be known of a document before it runs."""
