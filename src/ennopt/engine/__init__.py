"""Our own searches: on boxes of inputs, and on the signs of neurons."""
