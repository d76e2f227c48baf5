"""The style rules of a report: `report.css`, with colours as the reader prefers them, and light ones on paper."""

from importlib.resources import files

from rankspace.viz.palette import PALETTE, Role, dark_rules

ROLES: tuple[Role, ...] = ("paper", "wash", "ink", "soft", "line", "accent")


def style() -> str:
    """All rules of a page, those of its pictures included."""
    light = "".join(f"--{role}:{PALETTE[role].light};" for role in ROLES)
    dark = "".join(f"--{role}:{PALETTE[role].dark};" for role in ROLES)
    colours = f":root{{{light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root{{{dark}}} }}"
    rules = files("rankspace.viz").joinpath("report.css").read_text("utf-8")
    return f"{colours}\n{rules.strip()}\n{dark_rules()}"
