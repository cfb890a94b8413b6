"""The demo's page: the picture and the tables in one HTML file that needs nothing else, no network either."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from demo.report import HANDOVER_HEADINGS, Result, figures, handover_rows

__all__ = ["page"]

STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #22272e; background: #fff; margin: 2.5rem auto; max-width: 1500px;
       padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { max-width: 60rem; margin: .4rem 0; color: #454d58; } img { width: 100%; height: auto; margin-top: 1.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .38rem 1.4rem .38rem 0; border-bottom: 1px solid #e6e9ed; vertical-align: top; }
thead th { border-bottom: 2px solid #c5cad1; } tbody th { font-weight: normal; color: #6b7480; }
.yes { color: #12826f; font-weight: 600; } .no { color: #d1242f; font-weight: 600; }
"""

EXPLANATION: Final = (
    "Each lane is a partition. Its ground is the colour of the application that owns it, yellow while it was asked"
    " for and is kept because work on it is under way; the strong ridge is what flows through it. A lane without a"
    " ridge stands still. Application B joins while A is at work on one flight that takes long, and leaves again.",
    "Both runs have the same flights at the same pace, and the same work. The client of the second must wait in its"
    " revoke callback until all work on the partitions that move has ended; while it waits there, nobody polls.",
)


def page(results: Sequence[Result], svg: bytes) -> str:
    """The page's whole text. svg: the picture."""
    picture = base64.b64encode(svg).decode()
    explanation = "".join(f"<p>{escape(text)}</p>" for text in EXPLANATION[: len(results)])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>instride: the demo</title>'
        f"<style>{STYLE}</style></head><body>"
        "<h1>336,776 flights, two applications, one rebalance each way</h1>"
        f"{explanation}"
        f'<img alt="Timeline of ownership and throughput" src="data:image/svg+xml;base64,{picture}">'
        f"<h2>Verdict</h2>{_comparison(results)}"
        f"{''.join(_handovers(result) for result in results)}"
        "</body></html>\n"
    )


def _comparison(results: Sequence[Result]) -> str:
    rows = ([figure.label, *figure.texts] for figure in figures(results))
    return _table(["", *(result.name for result in results)], rows)


def _handovers(result: Result) -> str:
    return f"<h2>Hand-overs with {escape(result.name)}</h2>{_table(HANDOVER_HEADINGS, handover_rows(result))}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr><th>{escape(row[0])}</th>{''.join(map(_cell, row[1:]))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    kind = {"yes": ' class="yes"', "NO": ' class="no"'}.get(text, "")
    return f"<td{kind}>{escape(text)}</td>"
