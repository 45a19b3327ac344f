// Parts of a page: to find them, and to replace them by newer ones.

/**
 * Find the element that has an id.
 * @param {string} id
 */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`this page has no ${id}`);
  return found;
}

/**
 * Find the element around what an event is about.
 * @param {Event} event
 * @param {string} selector
 */
export function around(event, selector) {
  return event.target instanceof Element ? /** @type {HTMLElement | null} */ (event.target.closest(selector)) : null;
}

/**
 * Tell whether a click asks for another tab or window, which is for the browser to open.
 * @param {MouseEvent} event
 */
export function isForBrowser(event) {
  return event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0;
}

/** What is ticked stays so. @param {Element} part @param {Element} replacement */
function keepTicks(part, replacement) {
  for (const box of /** @type {NodeListOf<HTMLInputElement>} */ (part.querySelectorAll("input[data-kept]:checked"))) {
    const same = replacement.querySelector(`input[data-kept][value="${CSS.escape(box.value)}"]`);
    if (same) /** @type {HTMLInputElement} */ (same).checked = true;
  }
}

/**
 * Replace the parts of this page that differ in a newer version of it; everything else stays as it is.
 * @param {Document} newer
 * @param {string} [which] the parts
 */
export function replaceParts(newer, which = "[data-part]") {
  for (const part of document.querySelectorAll(which)) {
    const replacement = newer.getElementById(part.id);
    if (!replacement) continue;
    const unfolded = replacement.querySelectorAll("details");
    part.querySelectorAll("details").forEach((details, i) => unfolded[i]?.toggleAttribute("open", details.open));
    if (replacement.outerHTML === part.outerHTML) continue;
    keepTicks(part, replacement);
    const focused = part.contains(document.activeElement) && document.activeElement?.getAttribute("href");
    part.replaceWith(document.adoptNode(replacement));
    if (focused) {
      const link = /** @type {HTMLElement | null} */ (replacement.querySelector(`a[href="${CSS.escape(focused)}"]`));
      link?.focus({ preventScroll: true });
    }
    document.dispatchEvent(new CustomEvent("part", { detail: replacement }));
  }
}
