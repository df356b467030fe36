"""Statistics of people, estimated from their private reports."""
