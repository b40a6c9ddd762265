"""Files of tokens."""

import hashlib
import os


def token_of(name):
    return f"rvb_secret-of-{name}-0123456789"


def write_tokens(path, **roles):
    """Replaces the file by one with a token of each name, which has the role. Returns its path."""
    hashes = {name: hashlib.sha256(token_of(name).encode()).hexdigest() for name in roles}
    entries = [
        f'[[token]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{hashes[name]}"\n' for name, role in roles.items()
    ]
    following = path.with_suffix(".next")
    following.write_text("\n".join(entries))
    os.replace(following, path)
    return path
