// Pages by keyboard: a map says what each key does.

/**
 * @typedef {(event: KeyboardEvent) => unknown} Action
 * @typedef {object} Choices
 * @property {string} [fields] where keys are typed, and do nothing else
 * @property {(event: KeyboardEvent) => boolean} [isLeaving] tells whether a key ends typing
 * @property {(event: KeyboardEvent) => unknown} [leave] goes away from a field
 * @property {(event: KeyboardEvent) => boolean} [isFor] tells whether a key is for this map, and not for what has the focus
 * @property {(action: Action, event: KeyboardEvent) => unknown} [act] does what a key says, at once if nothing else is said
 */

const FIELDS = "input:not([type=checkbox], [type=radio]), select, textarea";

/**
 * Have keys do something; keys that the map lacks, and those together with Ctrl, Alt or Meta, stay with the browser.
 * @param {EventTarget} where keys are pressed
 * @param {Record<string, Action>} map by the name of the key
 * @param {Choices} [choices]
 */
export function listenForKeys(where, map, choices = {}) {
  const { fields = FIELDS, isLeaving, leave, isFor = () => true, act = (action, event) => action(event) } = choices;
  where.addEventListener("keydown", (pressed) => {
    const event = /** @type {KeyboardEvent} */ (pressed);
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target instanceof Element && event.target.matches(fields)) {
      if (!leave || (event.key !== "Escape" && !isLeaving?.(event))) return;
      event.preventDefault();
      leave(event);
      return;
    }
    if (!Object.hasOwn(map, event.key) || !isFor(event)) return;
    event.preventDefault();
    act(map[event.key], event);
  });
}
