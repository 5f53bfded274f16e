// What the page shows. Modules change it through `update` and redraw on the "change" event.

export const state = {
  items: [],
  runs: [],
  detail: null, // the open item with its size
  run: null, // identifier of the run whose prediction is shown
  compare: "", // "", "image" or the identifier of another run
  curtain: 0.5, // position of the curtain as a share of the width
  layers: { heat: false, outline: true, plus: false, minus: false, uncertainty: false, truth: false },
  opacity: 0.6,
  threshold: 0.5,
};

const events = new EventTarget();

export function update(changes) {
  Object.assign(state, changes);
  events.dispatchEvent(new CustomEvent("change", { detail: Object.keys(changes) }));
}

// Call `handler` after changes of any of `keys`.
export function onChange(keys, handler) {
  events.addEventListener("change", (event) => {
    if (event.detail.some((key) => keys.includes(key))) handler();
  });
}

export const runOf = (id) => state.runs.find((run) => run.id === id);
export const byId = (id) => document.getElementById(id);

// An element with text, attributes and children.
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
