"""Questions that take several runs: fronts, alternatives, sensitivity."""
