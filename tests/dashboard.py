"""firstdrift in a browser window, and everything that the browser had to complain of."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from playwright.sync_api import ConsoleMessage, Dialog, Locator, Page

Of = TypeVar("Of")
Given = ParamSpec("Given")
Result = TypeVar("Result")

ACTIONS = ("check", "click", "fill", "hover", "press", "select_option", "set_input_files", "uncheck")
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(event.violatedDirective);
});
"""


class Dashboard:
    """A page that remembers errors, dialogs and violations of the content security policy."""

    def __init__(self, page: Page, address: str) -> None:
        """Begin to listen."""
        self.page, self.address = page, address
        self.complaints: list[str] = []
        page.add_init_script(WATCH)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._dialog)

    def open(self, path: str) -> int:
        """Open a page and wait until it has everything; give the status of the answer."""
        answer = self.page.goto(path)
        self.settle()
        assert answer is not None, "it is another page"
        return answer.status

    def settle(self) -> None:
        """Wait until nothing is loading, and note what the policy stopped."""
        self.page.wait_for_load_state("load")
        self.page.evaluate("new Promise((done) => setTimeout(done, 50))")
        self.complaints += self.page.evaluate("window.violations.splice(0)")

    def wait_for_comparison(self) -> None:
        """Wait until the comparison on the page is finished."""
        self.page.locator(".finding .sentence a, .finding.tone-pass").first.wait_for(timeout=60_000)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text} ({message.location['url']})")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def wait_before_acting() -> None:
    """From now on, act only on pages that are loaded, as people do.

    A page that a link led to can be read before its modules run, and what is typed, chosen or clicked before
    that is lost.
    """
    for name in ACTIONS:
        setattr(Locator, name, _on_a_loaded_page(getattr(Locator, name), lambda locator: locator.page))
    for name in ("keyboard", "mouse"):
        setattr(Page, name, property(_on_a_loaded_page(getattr(Page, name).fget, lambda page: page)))


def _on_a_loaded_page(
    action: Callable[Concatenate[Of, Given], Result], page_of: Callable[[Of], Page]
) -> Callable[Concatenate[Of, Given], Result]:
    @wraps(action)
    def act(of: Of, *args: Given.args, **options: Given.kwargs) -> Result:
        page_of(of).wait_for_load_state("load")
        return action(of, *args, **options)

    return act
