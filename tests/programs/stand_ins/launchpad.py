"""A stand-in for DeepMind's Launchpad, which has no wheel for Python 3.11 and which Acme imports.

Acme's single-process agents use nothing of it but these two names: a handler is told when Launchpad stops a program.
Nothing is ever stopped here, so handlers are only kept.
"""

_handlers = []


def register_stop_handler(handler):
    _handlers.append(handler)


def unregister_stop_handler(handler):
    _handlers.remove(handler)
