"""``dpd schema``: the JSON Schema of the environment file."""

import click


@click.command(
    "schema",
    short_help="Print the JSON Schema of the environment file.",
    epilog="""\b
Editors with the YAML language server complete and validate a file that begins with
  # yaml-language-server: $schema=../docs/environment.schema.json""",
)
def command() -> None:
    """Print the JSON Schema (draft 2020-12) that editors complete and validate environment files from."""
    click.echo(schema_text(), nl=False)


def schema_text() -> str:
    """The schema as it is stored in docs/environment.schema.json."""
    import json  # noqa: PLC0415

    from dpd.environment.descriptions import json_schema  # noqa: PLC0415

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
