"""What child processes of `test_receipts.py` run. Imports little, because each child imports it."""


def take_batch(client):
    """Draws four items, and returns their values."""
    return client.sample_batch("table", 4, timeout=20.0).data[0].ravel().tolist()


def put_batch(client, results):
    results.put(take_batch(client))
