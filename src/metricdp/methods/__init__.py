"""From a problem and ε to a mechanism, one family of methods per file."""
