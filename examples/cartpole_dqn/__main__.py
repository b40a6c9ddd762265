"""Double DQN on CartPole-v1 with prioritised replay: one server, two actors, one learner.

    python examples/cartpole_dqn [--seed N] [--quick] [--keep] [--output DIR]

The learner is this process; the others are its children. Only the replay server connects them: transitions,
parameters and reports of finished episodes are items of its three tables.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import signal
import sys
import time

# The learner leaves the other core to the actors. JAX reads this when it is imported.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import reverb  # noqa: E402

import actor  # noqa: E402
import config as cfg  # noqa: E402
import learner  # noqa: E402
import network  # noqa: E402
import report  # noqa: E402
import server  # noqa: E402

QUICK_UPDATES = 3_000
SOLVED_RETURN = 400.0
# Seconds in which actors must notice that they should end, and in which a process must end.
ACTORS_GRACE_S = 0.5
PATIENCE_S = 30.0


class PeerError(RuntimeError):
    """A process that the run needs has exited."""


class Processes:
    """The child processes, which are started and ended together."""

    def __init__(self, config: cfg.Config):
        self._config = config
        self._context = multiprocessing.get_context("spawn")
        self._children: list[multiprocessing.process.BaseProcess] = []
        # Ctrl-C reaches every process of a terminal. Children ignore it from the start: the parent tells them to
        # end. If the parent is killed, the server ends, and the actors end when they notice.
        self._handler = signal.getsignal(signal.SIGINT)
        # The address of the server's page; None if it has none.
        self.page: str | None = None
        self._control, self._server_end = self._context.Pipe()
        self._ending = self._context.Event()

    def _start(self, name: str, target, args: tuple) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            child = self._context.Process(name=name, target=target, args=args)
            child.start()
        finally:
            signal.signal(signal.SIGINT, self._handler)
        self._children.append(child)

    def start(self) -> str:
        """Starts the server, then the actors, and returns the server's address."""
        self._start("server", server.run, (self._config, self._server_end))
        self._server_end.close()
        try:
            port, self.page = self._control.recv()
        except EOFError:
            raise PeerError("the server did not start") from None
        address = f"localhost:{port}"
        for index in range(self._config.num_actors):
            self._start(f"actor {index}", actor.run, (index, address, self._config, self._ending))
        return address

    def check(self) -> None:
        """Raises `PeerError` if a child has exited."""
        ended = [child for child in self._children if not child.is_alive()]
        if ended:
            raise PeerError(", ".join(f"{child.name} ended with status {child.exitcode}" for child in ended))

    def stop_actors(self) -> None:
        """Ends the actors.

        An actor that loses the server tries to reconnect for ten seconds. So actors that play get time to notice that
        they should end; those that wait in a call are woken when the server ends.
        """
        self._ending.set()
        grace_ends = time.monotonic() + ACTORS_GRACE_S
        for child in self._children[1:]:
            child.join(timeout=max(0.0, grace_ends - time.monotonic()))

    def keep_page(self) -> None:
        """Returns on Ctrl-C, or when the server has ended. Ends actors that wait in a call first."""
        for child in self._children[1:]:
            child.terminate()
        print(f"  the page stays open until Ctrl-C: {self.page}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            self._children[0].join()

    def stop(self) -> None:
        """Ends the actors, then the server, and kills processes that do not end."""
        self.stop_actors()
        self._control.close()
        for child in reversed(self._children):
            child.join(timeout=PATIENCE_S)
            if child.is_alive():
                print(f"{child.name} did not end by itself", file=sys.stderr)
                child.kill()
                child.join()


def evaluate(values: np.ndarray, config: cfg.Config, episodes: int = 20) -> list[float]:
    """Plays greedy episodes from new start states, and returns their returns."""
    env, layers = gymnasium.make("CartPole-v1"), network.split(values, config.layer_sizes)
    returns = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=1_000_000 + 1_000 * config.seed + episode)
        total, over = 0.0, False
        while not over:
            action = int(network.action_values(layers, observation).argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def learn(processes: Processes, config: cfg.Config) -> learner.History:
    """Runs the actors and the learner once. The server serves on."""
    address = processes.start()
    print(f"  the server's page: {processes.page}", flush=True)
    history = learner.run(
        address,
        config,
        report=lambda history, table: report.print_progress(history, config, table.current_size),
        check_peers=processes.check,
    )
    processes.stop_actors()
    return history


def verdict(history: learner.History, config: cfg.Config, quick: bool) -> int:
    """Returns the exit status: 0 if the agent learned and the limiter held the ratio."""
    first = np.mean([value for _, value in history.episodes[:20]])
    last = np.mean(history.last_returns())
    learned = last >= 2 * first if quick else last >= SOLVED_RETURN
    held = report.ratio_held(history, config)
    if not learned:
        print(f"FAILED: the return went from {first:.1f} to {last:.1f}", file=sys.stderr)
    if not held:
        print("FAILED: one side was further ahead than the rate limiter allows", file=sys.stderr)
    return 0 if learned and held else 1


def main() -> int:
    """Parses the command line, runs, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a short run that only has to improve, for CI")
    parser.add_argument("--keep", action="store_true", help="keep the server's page open at the end, until Ctrl-C")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("demo-output"))
    arguments = parser.parse_args()
    updates = {"num_updates": QUICK_UPDATES} if arguments.quick else {}
    config = cfg.Config(seed=arguments.seed, **updates)
    processes = Processes(config)
    try:
        history = learn(processes, config)
        arguments.output.mkdir(parents=True, exist_ok=True)
        report.save_picture(arguments.output / "cartpole_dqn.png", history, config)
        report.save_episodes(arguments.output / "episodes.csv", history)
        report.print_summary(history, evaluate(history.final_values, config), config)
        print(f"  picture: {arguments.output / 'cartpole_dqn.png'}")
        if arguments.keep:
            processes.keep_page()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (PeerError, reverb.errors.UnavailableError) as error:
        print(f"the run cannot go on: {error}", file=sys.stderr)
        return 1
    finally:
        processes.stop()
    return verdict(history, config, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
