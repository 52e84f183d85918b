"""A local page on which a model is explored and optimized without writing Python."""
