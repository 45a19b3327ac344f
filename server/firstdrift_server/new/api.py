"""/api/v1/browse: folders under the roots, with the format of the dump in each."""

from firstdrift_server.answers import api_router
from firstdrift_server.context import Shared
from firstdrift_server.new.view import listed_folder
from firstdrift_server.questions.folders import Order
from firstdrift_server.strict_json import StrictJSONResponse

router = api_router("", "folders")


@router.get("/browse")
def browse(
    context: Shared, path: str = "", order: Order = Order.NAME, begins: str = ""
) -> StrictJSONResponse:
    """List a folder under the roots; without a path the only root, or all of them.

    Of a folder of very many entries only some are seen, and `is_whole` is false: `begins` lists those whose
    names begin so.
    """
    return StrictJSONResponse(listed_folder(context, path, order, begins))
