"""Names for what is added to a network."""

from __future__ import annotations


def fresh(wanted: str, taken: set[str]) -> str:
    """Take a name that nothing has: the wanted one, else the first of ``WANTED_1``, ``WANTED_2``, ….

    Args:
        wanted: what it should be called.
        taken: names that others have; the answer is added.
    """
    name, count = wanted, 1
    while name in taken:
        name, count = f"{wanted}_{count}", count + 1
    taken.add(name)
    return name
