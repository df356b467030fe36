"""The paper's experiments: what is computed for them, its tables and figures, and a report beside the paper's own."""
