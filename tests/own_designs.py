"""Methods as a user might write them, in a module that worker processes can import."""

import os

import numpy as np

import metricdp as mdp
from metricdp.geometry.norms import norm
from problems import random_problem


def softmax(problem, epsilon):
    """The exponential mechanism, written as probabilities alone."""

    def rows(points):
        weights = np.exp(-epsilon / 2 * norm(points[:, None] - problem.outputs[None], problem.p))
        return weights / weights.sum(axis=1, keepdims=True)

    return rows


def nearest(problem, epsilon):
    return lambda points: np.eye(problem.n_outputs)[norm(points[:, None] - problem.outputs[None], 2).argmin(axis=1)]


def fails(problem, epsilon):
    return epsilon / 0


def process(problem, epsilon):
    raise RuntimeError(f"process {os.getpid()}")


def wrong_shape(problem, epsilon):
    return lambda points: np.ones((len(points), 1))


def wrong_sum(problem, epsilon):
    return lambda points: np.full((len(points), problem.n_outputs), 0.2)


def negative(problem, epsilon):
    return lambda points: np.tile([1.5, -0.5, 0.0, 0.0], (len(points), 1))


def not_a_number(problem, epsilon):
    return lambda points: np.full((len(points), problem.n_outputs), np.nan)


def nothing(problem, epsilon):
    return None


def other_outputs(problem, epsilon):
    return mdp.fit(random_problem(1, n_records=40, n_outputs=4), epsilon, "em")


def other_norm(problem, epsilon):
    return mdp.fit(random_problem(0, n_records=40, n_outputs=4, p=1.0), epsilon, "em")


def noise(problem, epsilon):
    return mdp.noise(epsilon, bounds=problem.bounds)
