"""What people and programs do with runs."""
