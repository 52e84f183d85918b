"""From a function or a table to a trained ensemble."""
