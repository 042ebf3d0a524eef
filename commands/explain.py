"""``dpd explain``: why a check exists."""

import textwrap
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from commands.rules import Rule

WIDTH: Final = 100


@click.command(
    "explain",
    short_help="Say why a check exists.",
    epilog="""\b
Examples:
  dpd explain CFG003
  dpd explain --all""",
)
@click.argument("ids", nargs=-1, metavar="[CHECK ID]...")
@click.option("--all", "everything", is_flag=True, help="List every check with its title.")
def command(*, ids: tuple[str, ...], everything: bool) -> int:
    """Say what a check looks at, what happens on a real cluster without it, and where the rule is stated."""
    from commands.rules import families, rules  # noqa: PLC0415

    if everything:
        for family, members in families().items():
            click.echo(family)
            for rule in members:
                click.echo(f"  {rule.id:<8} {rule.level.value:<8} {rule.title}")
        return 0
    if not ids:
        raise click.UsageError("Name a check id, or give --all for the list.")
    known = rules()
    unknown = [id_ for id_ in ids if id_.upper() not in known]
    for id_ in unknown:
        click.echo(_unknown(id_, list(known)), err=True)
    if found := [_explained(known[id_.upper()]) for id_ in ids if id_ not in unknown]:
        click.echo("\n\n".join(found))
    return 1 if unknown else 0


def _explained(rule: "Rule") -> str:
    lines = [f"{rule.id} ({rule.level.value}): {rule.title}", "", textwrap.fill(rule.why, WIDTH), "", f"Rule: {rule.link}"]
    return "\n".join([*lines, *(f"Met in: {report}" for report in rule.seen_in)])


def _unknown(id_: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415

    from dpd.finding import safe  # noqa: PLC0415

    asked = id_.upper()[:40]
    near = [other for other in known if other.startswith(asked)] or difflib.get_close_matches(asked, known, n=3)
    hint = f"Near it: {', '.join(near)}." if near else "See the list: dpd explain --all"
    return f"Error: there is no check {safe(id_, most=40)}. {hint}"
