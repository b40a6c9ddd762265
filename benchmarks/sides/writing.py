"""Items made by writers, with the same calls on both sides."""

# Items per call, and items that may be unconfirmed after it.
ITEMS = 200


def trajectory_writer(client, steps, table):
    """Writes one item per step, of that step: `append`, `create_item`, and occasionally `flush`."""
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
    """Does the same with the older writer."""
    writer = client.writer(1, max_in_flight_items=ITEMS)

    def call():
        for index in range(ITEMS):
            writer.append(steps[index % len(steps)])
            writer.create_item(table, 1, 1.0)

    return call


CALLS = {"trajectory_writer": trajectory_writer, "writer": row_writer}
