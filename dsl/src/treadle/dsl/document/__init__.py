"""From text to a document with positions."""
