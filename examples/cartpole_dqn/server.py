"""The replay server's process: three tables and nothing else."""

from __future__ import annotations

from multiprocessing.connection import Connection

import reverb

import config as cfg


def tables(config: cfg.Config) -> list[reverb.Table]:
    """The tables: transitions for the learner, parameters for the actors, and episodes for the report."""
    return [
        reverb.Table(
            name=cfg.REPLAY,
            sampler=reverb.selectors.Prioritized(config.priority_exponent),
            remover=reverb.selectors.Fifo(),
            max_size=config.max_size,
            # The faster of actors and learner waits here for the other.
            rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
                samples_per_insert=config.samples_per_insert,
                min_size_to_sample=config.min_size_to_sample,
                error_buffer=config.error_buffer,
            ),
            signature=cfg.transition_signature(),
        ),
        # One item, the newest: an insert replaces the old one, and a sample leaves it there.
        reverb.Table(
            name=cfg.PARAMETERS,
            sampler=reverb.selectors.Lifo(),
            remover=reverb.selectors.Fifo(),
            max_size=1,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=cfg.parameters_signature(config),
        ),
        reverb.Table.queue(cfg.EPISODES, max_size=10_000, signature=cfg.episode_signature()),
    ]


def run(config: cfg.Config, control: Connection) -> None:
    """Serves until `control` is readable, which it also is once the other end has died."""
    server = reverb.Server(tables(config), port=None)
    control.send((server.port, server.dashboard_url))
    control.poll(None)
    server.stop()
