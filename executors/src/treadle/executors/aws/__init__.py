"""AWS Lambda: the invoker (extra `aws`) and the function's entry point."""
