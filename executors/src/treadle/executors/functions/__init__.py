"""Functions of a provider as slots: what AWS Lambda and Apache OpenWhisk have in common."""
