"""A folder under the roots, with what lies in it."""

from firstdrift.errors import LimitError
from firstdrift_server.context import Context
from firstdrift_server.questions.folders import Folder, Order, list_folder


def listed_folder(context: Context, wanted: str, order: Order = Order.NAME, begins: str = "") -> Folder:
    """List a folder as `list_folder` does, in a child process.

    Where looking into what lies there takes too much, it is listed all the same, without formats.
    """
    try:
        return context.ask(list_folder, context.roots, wanted, order, begins)
    except LimitError:
        return list_folder(context.roots, wanted, order, begins, looks=False)
