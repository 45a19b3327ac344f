"""/api/v1/comparisons/{id}/export, and the same for people at /c/{id}/export: a comparison as a file."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from firstdrift_server.answers import ERRORS, described_file
from firstdrift_server.context import Shared
from firstdrift_server.export.view import MEDIA_TYPES, exported
from firstdrift_server.export.wanted import Columns, Format

router = APIRouter(tags=["exports"], responses=ERRORS)

Written = Annotated[Format, Query(alias="format")]


@router.get(
    "/api/v1/comparisons/{comparison}/export", response_class=Response, responses=described_file(*MEDIA_TYPES)
)
@router.get("/c/{comparison}/export", include_in_schema=False)
def write_out(
    request: Request,
    comparison: int,
    context: Shared,
    written: Written = Format.CSV,
    columns: Columns = Columns.FIRSTDRIFT,
) -> Response:
    """Write all pairs as CSV or XLSX in the columns of firstdrift, msit or msprobe, or a report for people.

    `html` is one page that needs no server, `md` a summary in Markdown, `json` what the API says of the
    comparison; `layer_mapping` and `data_mapping` are mapping files of msprobe, `view_mapping` is ours.
    """
    return exported(request, context, comparison, written, columns)
