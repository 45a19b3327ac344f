"""Templates are compiled once, for all languages."""

import pytest

from firstdrift_frontend import TEMPLATES
from firstdrift_frontend.languages import LANGUAGES
from firstdrift_frontend.rendering import _environment, prepare


@pytest.mark.parametrize("template", sorted(TEMPLATES.iterdir()), ids=lambda template: template.name)
def test_a_template_is_the_same_code_in_every_language(template: object) -> None:
    source = TEMPLATES.joinpath(str(template)).read_text(encoding="utf-8")
    codes = {_environment(language).compile(source, str(template), raw=True) for language in LANGUAGES}
    assert len(codes) == 1


def test_all_templates_can_be_compiled_ahead() -> None:
    prepare()
