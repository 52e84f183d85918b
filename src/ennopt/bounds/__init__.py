"""How far a neuron, or the objective, can go on a box."""
