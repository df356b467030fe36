"""The page for people: its routes, its files and the mechanisms of the demo."""
