// As much of a browser as the modules of the pages ask for while they are tried without one.

/** A field or a button that has the focus, by the names that it is found by. */
export class FakeElement extends EventTarget {
  constructor(...selectors) {
    super();
    this.selectors = selectors;
  }

  matches(list) {
    return this.selectors.some((selector) => list.split(/,\s*/).some((one) => one.startsWith(selector)));
  }
}

globalThis.Element = FakeElement;
globalThis.addEventListener = () => {};
globalThis.document = { getElementById: () => null, querySelector: () => null };

/** Answer all questions alike; give what was asked. */
export function answering(status, text) {
  const asked = [];
  globalThis.fetch = async (address, options) => {
    asked.push({ address, ...options });
    return { status, ok: status >= 200 && status < 300, text: async () => text };
  };
  return asked;
}

/** Press a key. */
export function press(where, key, more = {}) {
  const event = Object.assign(new Event("keydown", { cancelable: true }), { key, ...more });
  where.dispatchEvent(event);
  return event;
}
