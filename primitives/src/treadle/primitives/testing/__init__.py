"""Conformance suites and real services for tests: of this package, and of stores written elsewhere."""
