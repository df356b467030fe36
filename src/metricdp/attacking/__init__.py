"""What an adversary learns from reports: one or many, from one place or along a trace."""
