"""The collectives as pure state machines: views, messages and local operations in, messages to members out."""
