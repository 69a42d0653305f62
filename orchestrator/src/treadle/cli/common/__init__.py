"""What all commands share: `options`, `exits` (codes and errors), `words` (numbers and times for people), `advice`
(what to type next), `environment` (home, profile, store, connection), `documents` (the files that they are given)."""
