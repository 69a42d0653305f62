"""Code that all commands share: `options`, `exit_codes` (codes and errors), `formatting` (numbers and times for the
user), `hints` (suggested commands), `environment` (home, profile, store, connection), `documents` (workflow and input
files)."""
