"""The figures of a table that dm-reverb lacks. Made by `make table-figures`."""

import dataclasses

__all__ = ["TableFigures"]


@dataclasses.dataclass(kw_only=True)
class TableFigures:
    """Figures of a table. None for one that is not known.

    Attributes:
      bytes: Size of the chunks that items refer to. Each chunk counts once.
      undelivered_samples: Samples that were drawn and have not arrived yet.
      waiting_inserts: Inserts that wait.
      waiting_samples: Samples that wait.
      removals: Items that left the table, by reason. One that came back and left again counts twice.
      weight: Sum of the weights of all items in draws: for a prioritized sampler of their priorities to the power of
        its exponent, otherwise their number.
      referenced_bytes: Size of the rows that items refer to. A row counts once for each item.
      index_bytes: Estimated size of the table without its chunks: slots of items, index of keys, and selectors.
      chunks: Distinct chunks that items refer to.
      unsampled_removals: Items that left the table without a sample.
      priority_updates: Items whose priority was set after their insert.
      insert_bytes: Size of the rows of inserted items.
      sample_bytes: Size of the rows of sampled items, also of samples that went back.
      last_insert_at: Unix time of the latest insert. Absent before the first.
      last_sample_at: Unix time of the latest sample. Absent before the first.
      longest_insert_wait_seconds: Time that the first waiting insert has waited. 0 if none waits.
      longest_sample_wait_seconds: Time that the first waiting sample has waited. 0 if none waits.
      largest_priority: Largest finite priority of inserts and updates since the last reset. 1 before the first above 0.
      process_inserts: Items inserted since the server started.
      process_samples: Items sampled since the server started, also of samples that went back.
      returned_samples: Samples that went back to the table, since their receiver never got them.
      returned_items: Items that came back to the table after their last sample, which went back.
      inserts_by_client: Items inserted, by the name of the program that inserted them: of at most 1,024, and of
        `others`.
    """

    bytes: int | None = dataclasses.field(default=None, compare=False, metadata={"name": "size_bytes"})
    undelivered_samples: int | None = dataclasses.field(default=None, compare=False)
    waiting_inserts: int | None = dataclasses.field(default=None, compare=False)
    waiting_samples: int | None = dataclasses.field(default=None, compare=False)
    removals: dict[str, int] | None = dataclasses.field(default=None, compare=False, metadata={"name": "removed"})
    weight: float | None = dataclasses.field(default=None, compare=False)
    referenced_bytes: int | None = dataclasses.field(default=None, compare=False)
    index_bytes: int | None = dataclasses.field(default=None, compare=False)
    chunks: int | None = dataclasses.field(default=None, compare=False)
    unsampled_removals: int | None = dataclasses.field(default=None, compare=False)
    priority_updates: int | None = dataclasses.field(default=None, compare=False)
    insert_bytes: int | None = dataclasses.field(default=None, compare=False)
    sample_bytes: int | None = dataclasses.field(default=None, compare=False)
    last_insert_at: float | None = dataclasses.field(default=None, compare=False)
    last_sample_at: float | None = dataclasses.field(default=None, compare=False)
    longest_insert_wait_seconds: float | None = dataclasses.field(default=None, compare=False)
    longest_sample_wait_seconds: float | None = dataclasses.field(default=None, compare=False)
    largest_priority: float | None = dataclasses.field(default=None, compare=False)
    process_inserts: int | None = dataclasses.field(default=None, compare=False)
    process_samples: int | None = dataclasses.field(default=None, compare=False)
    returned_samples: int | None = dataclasses.field(default=None, compare=False)
    returned_items: int | None = dataclasses.field(default=None, compare=False)
    inserts_by_client: dict[str, int] | None = dataclasses.field(default=None, compare=False)
