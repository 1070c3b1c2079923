"""How ``fetch`` and ``sources list`` show pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from opencoti_build.sources.batch import Outcome


def as_data(outcome: Outcome) -> dict[str, object]:
    """One pin as plain data, sizes in bytes."""
    pin = outcome.pin
    return {
        "name": pin.name,
        "kind": pin.kind.value,
        "version": pin.version,
        "license": pin.license,
        "tree": pin.tree,
        "sha256": pin.sha256,
        "locked": pin.locked,
        "transports": [{"kind": way.kind.value, "label": way.label} for way in pin.transports],
        "size": outcome.size,
        "where": None if outcome.where is None else str(outcome.where),
        "status": outcome.status.value,
        "error": outcome.error.to_json() if outcome.error else None,
    }


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print columns on stdout, as wide as they need to be."""
    widths = [max(len(row[n]) for row in [header, *rows]) for n in range(len(header))]
    for row in [header, *rows]:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def size_text(size: int | None) -> str:
    """Bytes as megabytes with one digit."""
    return "-" if size is None else f"{size / 1e6:.1f} MB"
