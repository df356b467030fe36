"""Losses that no private mechanism can beat: one file per lower bound, and `choosing` for the public function."""
