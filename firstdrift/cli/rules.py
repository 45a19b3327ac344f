"""`firstdrift rules`: by what rules nodes are judged."""

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def rules(*, as_json: bool) -> None:
    """List the rules by which nodes are judged: what explains an error, and what a node is called."""
    from firstdrift.exports.rules import rules_object, rules_text
    from firstdrift.strict_json import to_json

    click.echo(to_json(rules_object()) if as_json else rules_text(), nl=as_json)
