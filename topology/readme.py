"""Keeps the drawn parts of topology/README.md equal to the declaration; `python -m topology.readme` draws them anew."""

import re
from pathlib import Path

from topology.render import flow_mermaid, topic_table

README = Path(__file__).with_name("README.md")


def refreshed(text: str) -> str:
    """Draw anew what stands between the markers, and leave the rest as it was written."""
    for name, drawn in (("flow", f"```mermaid\n{flow_mermaid()}```\n"), ("topics", topic_table())):
        between = re.compile(rf"(<!-- drawn: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = between.sub(lambda found, drawn=drawn: f"{found[1]}{drawn}{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text()))
