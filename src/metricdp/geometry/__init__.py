"""Where points live: norms, grids, splines, the lattice that points are rounded to, projections and the Earth."""
