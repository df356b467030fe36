"""How far from the best possible: losses that no private mechanism can beat."""
