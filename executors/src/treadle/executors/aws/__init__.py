"""AWS Lambda: the invoker (extra `aws`) and the entry of the function."""
