"""Optimisation: the forms of programs, their repair, lazily found constraints, and the engines that solve them."""
