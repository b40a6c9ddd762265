"""Data and its description: dtypes, nests, signatures, items, and checks of arguments. Independent of servers."""
