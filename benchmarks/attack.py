"""What an adversary learns from San Francisco's taxis, who report with exact noise every minute or every five.

The movement model and its prior come from some taxis, and the adversary follows others. Needs the traces of
`san-francisco-taxis` where METRICDP_DATA points.

    METRICDP_DATA=… python benchmarks/attack.py [--traces 60] [--json FILE]
"""

import argparse
import json
import os
import sys
from pathlib import Path

import pandas as pd

import metricdp as mdp

# About 13 km, west and south to east and north; the first 20 of 30 taxis are the public ones.
BOX = [[-122.51, 37.70], [-122.36, 37.82]]
PUBLIC = 20
CELL_KM = 0.2


def traces():
    path = Path(os.environ.get("METRICDP_DATA", "")) / "san-francisco-taxis" / "traces.csv.xz"
    if not path.is_file():
        sys.exit(f"There are no traces at {path}; say with METRICDP_DATA where they are.")
    table = pd.read_csv(path).rename(columns={"taxi": "id"})
    public = sorted(table["id"].unique())[:PUBLIC]
    return table[table["id"].isin(public)], table[~table["id"].isin(public)]


def followed(every, epsilon, count=100):
    """What is known of each moment of others' traces, by whom; ends the program if somebody beats the Bayes bound."""
    public, others = traces()
    movement = mdp.traces.Movement.fit(public, seconds=every, cell_km=CELL_KM, bounds=BOX)
    raster = movement.raster
    mechanism = mdp.noise(epsilon, bounds=raster.bounds, projection=raster.projection)
    found = mdp.attack_traces(mechanism, movement, others, traces=count)
    below = [row for row in found.table if not row.error >= row.bound]
    if below:
        sys.exit(f"Below the Bayes bound: {below}")
    return {"rows": [_plain(row) for row in found.table]}


def _plain(row):
    return {
        "known": row.known,
        "error_m": 1000 * row.error,
        "standard_error_m": 1000 * row.standard_error,
        "believed_m": 1000 * row.believed,
        "bayes_bound_m": 1000 * row.bound,
        **{f"within_{1000 * radius:.0f}_m": chance for radius, chance in row.within},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print("| every | ε | known | off by, m | believed, m | Bayes bound, m | within 100 m | within 500 m |")
    print("|---|---|---|---|---|---|---|---|")
    for every in (60, 300):
        for epsilon in (1, 2, 4):
            for row in followed(every, epsilon, options.traces)["rows"]:
                rows.append({"every_s": every, "epsilon_per_km": epsilon, **row})
                metres = f"{row['error_m']:.0f} ± {2 * row['standard_error_m']:.0f} | {row['believed_m']:.0f}"
                near = " | ".join(f"{100 * row[name]:.1f} %" for name in ("within_100_m", "within_500_m"))
                print(
                    f"| {every} s | {epsilon} | {row['known']} | {metres} | {row['bayes_bound_m']:.0f} | {near} |",
                    flush=True,
                )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
