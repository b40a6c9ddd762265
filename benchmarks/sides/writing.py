"""Items by writers: the same calls on both sides."""

# Items of a call, and items that may be unconfirmed after it.
ITEMS = 200


def trajectory_writer(client, steps, table):
    """One item a step, of that step: `append`, `create_item`, and now and then `flush`."""
    writer = client.trajectory_writer(1)
    names = list(steps[0])

    def call():
        for index in range(ITEMS):
            writer.append(steps[index % len(steps)])
            history = writer.history
            writer.create_item(table, 1.0, {name: history[name][-1] for name in names})
        writer.flush(ITEMS)

    return call


def row_writer(client, steps, table):
    """The same by the older writer."""
    writer = client.writer(1, max_in_flight_items=ITEMS)

    def call():
        for index in range(ITEMS):
            writer.append(steps[index % len(steps)])
            writer.create_item(table, 1, 1.0)

    return call


CALLS = {"trajectory_writer": trajectory_writer, "writer": row_writer}
