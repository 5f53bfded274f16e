// Keyboard shortcuts.

import { LAYERS } from "./layers.js";
import { byId, element, state, update } from "./state.js";

const clampShare = (value) => Math.min(Math.max(Math.round(100 * value) / 100, 0.01), 0.99);

export function startKeyboard({ step, toggleLayer, toggleCurtain, stage, tools }) {
  const actions = [
    ["→", "next image", ["ArrowRight", "j"], () => step(1)],
    ["←", "previous image", ["ArrowLeft", "k"], () => step(-1)],
    ...LAYERS.map(({ id, name }, index) => [String(index + 1), `layer: ${name}`, [String(index + 1)], () => toggleLayer(id)]),
    ["+", "zoom in", ["+", "="], () => stage.zoomBy(1.4)],
    ["−", "zoom out", ["-"], () => stage.zoomBy(1 / 1.4)],
    ["0", "whole image", ["0"], () => stage.home()],
    ["[ ]", "lower or raise the threshold", ["[", "]"], (key) => update({ threshold: clampShare(state.threshold + (key === "[" ? -0.05 : 0.05)) })],
    ["C", "comparison curtain", ["c"], toggleCurtain],
    ["M", "measure a length", ["m"], () => tools.toggle("measure")],
    ["B", "correct the mask with a brush", ["b"], () => tools.toggle("brush")],
    ["U", "undo the last stroke", ["u"], () => tools.brush.undo()],
    ["Esc", "end the tool", ["Escape"], () => tools.choose(null)],
    ["?", "this list", ["?"], () => byId("keys").showModal()],
  ];
  byId("key-list").append(
    ...actions.flatMap(([keys, text]) => [element("dt", {}, element("kbd", {}, keys)), element("dd", {}, text)]),
  );
  byId("show-keys").addEventListener("click", () => byId("keys").showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    if (event.target.matches("input[type=search], select")) return;
    const isSlider = event.target.matches("input[type=range]");
    if (isSlider && event.key.startsWith("Arrow")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const action = actions.find(([, , keys]) => keys.includes(key));
    if (action) {
      event.preventDefault();
      action[3](key);
    }
  });
}
