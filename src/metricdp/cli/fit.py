"""`metricdp fit` and `metricdp certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp.certify import Certificate, certify
from metricdp.cli._console import out, print_json, progress_bar
from metricdp.files import load
from metricdp.fit import METHODS, fit
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem
from metricdp.problem_files import read_problem

__all__ = ["certify_command", "fit_command"]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def fit_command(
    problem: Annotated[
        Path | None,
        typer.Argument(help="An .npz with arrays records, outputs and, if you like, loss, prior, bounds."),
    ] = None,
    *,
    epsilon: Annotated[
        float, typer.Option(help="Privacy budget per unit of distance; smaller is more private.")
    ],
    out_file: Annotated[Path, typer.Option("--out", help="Where to write the mechanism.")] = Path(
        "mechanism.mdp"
    ),
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "auto",
    p: Annotated[float, typer.Option(help="Order of the norm that measures distance: 1, 2, inf, …")] = 2.0,
    records: Annotated[Path | None, typer.Option(help="CSV of records, instead of an .npz.")] = None,
    outputs: Annotated[Path | None, typer.Option(help="CSV of outputs.")] = None,
    loss: Annotated[
        str | None, typer.Option(help="euclidean, squared, or a CSV (records x outputs).")
    ] = None,
    prior: Annotated[Path | None, typer.Option(help="CSV with one weight per record.")] = None,
    cells: Annotated[str | None, typer.Option(help="Cells per axis: 16, or 15,16.")] = None,
    solver: Annotated[str | None, typer.Option(help="auto, highs or clarabel.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; the best certified answer by then.")
    ] = None,
    refine: Annotated[bool | None, typer.Option("--refine", help="Descend on the true loss (AIPO).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Design a mechanism, prove that it is private, and write it to a file."""
    design = read_problem(problem, records=records, outputs=outputs, loss=loss, prior=prior, p=p)
    given = {"cells": _cells(cells), "solver": solver, "time_limit": time_limit, "refine": refine}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with progress_bar(f"fitting {method}") as progress:
        mechanism = fit(design, epsilon, method, progress=progress, **options)
    mechanism.save(out_file)
    answer = summary(mechanism, design) | {"file": str(out_file)}
    if as_json:
        print_json(answer)
    else:
        _show_fit(answer)


def summary(mechanism: Mechanism, problem: Problem) -> dict[str, Any]:
    """Return what a user wants to know of a fit, as plain data."""
    return {
        "method": mechanism.method,
        "epsilon": mechanism.epsilon,
        "p": mechanism.p,
        "loss": mechanism.expected_loss(problem),
        "loss_without_privacy": problem.floor,
        "loss_of_uniform_choice": problem.uniform_loss,
        "report": dict(mechanism.report),
    }


def _show_fit(answer: dict[str, Any]) -> None:
    certificate = answer["report"]["certificate"]
    out.print(f"[bold]{answer['method']}[/], ε = {answer['epsilon']:g}, p = {answer['p']:g}")
    out.print(
        f"expected loss [bold]{answer['loss']:.4f}[/] "
        f"(no privacy {answer['loss_without_privacy']:.4f}, "
        f"uniform choice {answer['loss_of_uniform_choice']:.4f})"
    )
    out.print(f"certified: {certificate['claim']}")
    out.print(f"written to {answer['file']}")


def certify_command(
    file: Annotated[Path, typer.Argument(help="A mechanism file.")],
    *,
    as_json: JsonFlag = False,
) -> None:
    """Prove from the file alone that a mechanism is private; exit code 1 if that fails."""
    certificate = certify(load(file))
    if as_json:
        print_json(certificate.to_dict())
    else:
        _show_certificate(certificate)
    if not certificate.holds:
        raise typer.Exit(1)


def _show_certificate(certificate: Certificate) -> None:
    verdict = "[bold green]holds[/]" if certificate.holds else "[bold red]does not hold[/]"
    out.print(f"{verdict}: {certificate.claim}")
    out.print(f"worst ratio {certificate.worst_ratio:.6f} of ε at {certificate.worst_where}")
    out.print(f"{certificate.checked:,} comparisons in {certificate.seconds:.2f} s")


def _cells(text: str | None) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--cells must be whole numbers such as 16 or 15,16, got {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers
