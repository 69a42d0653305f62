"""What tasks are told, and what their outcomes come to."""
