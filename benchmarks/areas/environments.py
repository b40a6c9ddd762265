"""A vector of environments with and without a writer: the cost of storing steps in the loop that makes them.

Gymnasium's CartPole, 64 of them in a SyncVectorEnv, with random actions; every step makes a 3-step transition of each
environment through `reverb.adders.NStepTransitionAdder`. An item is a step of one environment.
"""

import timing

ROADS = (None, "same_process", "unix", "tcp")


def run(sides, quick):
    if "ours" not in sides:
        return
    rounds, seconds = (3, 0.3) if quick else (7, 1.0)
    with sides.worker("ours") as actor:
        if not actor.call("environments_can"):
            return
    with sides.worker("ours") as server:
        addresses = server.call("environments_serve")
        actors = {road: server if road == "same_process" else sides.worker("ours") for road in ROADS}
        try:
            for road, actor in actors.items():
                actor.call("environments_setup", address=addresses.get(road))
            cells = {road: [] for road in ROADS}
            for _ in range(rounds):
                for road, actor in actors.items():
                    cells[road].append(actor.call("environments_step", seconds=seconds))
        finally:
            for actor in actors.values():
                actor.end()
    bare = timing.summary(cells[None])
    for road, results in cells.items():
        result = timing.summary(results)
        labels = {"side": "ours", "work": "bare" if road is None else "3-step transitions", "road": road}
        yield {**labels, **result, "of_bare": round(result["items_per_s"] / bare["items_per_s"], 3)}
