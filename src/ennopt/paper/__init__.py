"""The paper's methods: big-M, branch and cut, the two-phase algorithm."""
