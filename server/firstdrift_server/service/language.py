"""/language: the language of the pages, kept in a cookie."""

from http import HTTPStatus

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from firstdrift.errors import SettingsError
from firstdrift.wording.message import Message
from firstdrift_frontend.languages import LANGUAGES
from firstdrift_server.forms import Fields
from firstdrift_server.guards.login import local_address
from firstdrift_server.reader_language import LANGUAGE_COOKIE

router = APIRouter(include_in_schema=False)

_YEAR = 365 * 24 * 3600


@router.post("/language")
def choose(fields: Fields) -> Response:
    """Remember the language, and go back to the page."""
    language, back = fields.get("language", ""), fields.get("back", "/")
    if language not in LANGUAGES:
        raise SettingsError(
            Message.of("server.no_such_language", language=language[:40]),
            hint=Message.of("server.choose_one_of", names=tuple(LANGUAGES)),
        )
    response = RedirectResponse(local_address(back), HTTPStatus.SEE_OTHER)
    response.set_cookie(LANGUAGE_COOKIE, language, max_age=_YEAR, httponly=True, samesite="lax")
    return response
