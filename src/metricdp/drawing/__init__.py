"""Random bits, and draws that follow given weights exactly."""
