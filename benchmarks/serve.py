"""The service under load from `wrk`: single points with and without a ledger, batches, and minutes of steady load."""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import metricdp as mdp

COMMAND = [sys.executable, "-c", "from metricdp.cli import main; main()", "serve"]
PERSONS = 100_000

# Bodies are made before the load begins; places all over Helsinki's centre, and persons in turn.
LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local shapes, ledger, persons = {%(shapes)s}, %(ledger)s, %(persons)d
local bodies, turn = {}, 0
function init()
  math.randomseed(7)
  for i = 1, 240 do
    local points, users = {}, {}
    for j = 1, shapes[(i - 1) %% #shapes + 1] do
      points[j] = string.format("[%%.7f,%%.7f]", 24.936 + 0.018 * math.random(), 60.165 + 0.014 * math.random())
      users[j] = '"person ' .. math.random(persons) .. '"'
    end
    bodies[i] = '{"points":[' .. table.concat(points, ",") .. "]"
      .. (ledger and ',"users":[' .. table.concat(users, ",") .. "]" or "") .. "}"
  end
end
function request()
  turn = turn %% #bodies + 1
  return wrk.format(nil, nil, nil, bodies[turn])
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\\nRESULT {"requests": %%d, "seconds": %%.3f, "p50_ms": %%.2f, "p99_ms": %%.2f, "max_ms": %%.2f, '
      .. '"errors": %%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


@contextmanager
def service(folder, *options):
    """Start a service of its own process on a free port, and yield its address and number."""
    process = subprocess.Popen(
        [*COMMAND, str(folder / "helsinki.mdp"), "--port", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            sys.exit("the service did not start")
        yield found.group(), process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def load(folder, url, seconds, connections, shapes, *, ledger):
    """Ask for some seconds; `shapes` are the points per request, in turn."""
    script = folder / f"load-{time.time_ns()}.lua"
    words = {"shapes": ", ".join(map(str, shapes)), "ledger": str(ledger).lower(), "persons": PERSONS}
    script.write_text(LUA % words)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script)]
    said = subprocess.run([*command, f"{url}/v1/perturb"], capture_output=True, text=True, check=True).stdout
    answer = json.loads(re.search(r"RESULT (.*)", said).group(1))
    answer["requests_per_second"] = answer["requests"] / answer["seconds"]
    answer["points_per_second"] = answer["requests_per_second"] * statistics.mean(shapes)
    return answer


def memory_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1000


def steady(folder, url, pid, minutes):
    """Mixed load with a ledger: nine single points to one batch of 1,000; memory every two seconds."""
    samples, stop, started = [], threading.Event(), time.monotonic()

    def watch():
        while not stop.wait(2):
            samples.append((time.monotonic() - started, memory_mb(pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer = load(folder, url, max(1, round(minutes * 60)), 32, [1] * 9 + [1000], ledger=True)
    stop.set()
    watcher.join()
    tenth = max(1, len(samples) // 10)
    values = [value for _, value in samples]
    # The first tenth is left out: caches fill.
    return answer | {
        "minutes": minutes,
        "memory_mb_early": statistics.median(values[tenth : 2 * tenth] or values),
        "memory_mb_late": statistics.median(values[-tenth:]),
        "memory_mb_peak": max(values),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=int, default=10, help="of each load")
    parser.add_argument("--minutes", type=float, default=0, help="of steady load; 0 leaves it out")
    parser.add_argument("--folder", help="on the disk to be measured; default: a temporary folder")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this benchmark needs wrk (https://github.com/wg/wrk), for example: apt install wrk")
    answers = []

    def tell(what, answer):
        answers.append({"what": what, **answer})
        if arguments.json:
            return
        print(
            f"{what}: {answer['requests_per_second']:,.0f} requests/s, {answer['points_per_second']:,.0f} points/s, "
            f"p50 {answer['p50_ms']:.1f} ms, p99 {answer['p99_ms']:.1f} ms, {answer['errors']} errors",
            flush=True,
        )
        if "minutes" in answer:
            early, late, peak = (answer[f"memory_mb_{when}"] for when in ("early", "late", "peak"))
            print(f"  memory {early:.0f} MB early, {late:.0f} MB late, {peak:.0f} MB at the peak", flush=True)

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
        mdp.fit(problem, epsilon=8, method="spline", cells=12).save(folder / "helsinki.mdp")
        with service(folder) as (url, _):
            for connections in (1, 32, 128):
                what = f"single points, {connections} connections"
                tell(what, load(folder, url, arguments.seconds, connections, [1], ledger=False))
            tell("batches of 1,000, 8 connections", load(folder, url, arguments.seconds, 8, [1000], ledger=False))
        with service(folder, "--ledger", str(folder / "budgets.db"), "--max-epsilon", "1e12") as (url, pid):
            for connections in (1, 32, 128):
                what = f"single points with a ledger, {connections} connections"
                tell(what, load(folder, url, arguments.seconds, connections, [1], ledger=True))
            what = "batches of 1,000 with a ledger, 8 connections"
            tell(what, load(folder, url, arguments.seconds, 8, [1000], ledger=True))
            if arguments.minutes:
                what = f"{arguments.minutes:g} minutes of nine single points to one batch of 1,000, with a ledger"
                tell(what, steady(folder, url, pid, arguments.minutes))
    if arguments.json:
        print(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
