// Pictures of a soft mask: heat map, X+ and X-, uncertainty. Computed once per mask, then only drawn.

import { cividis, viridis } from "./colours.js";

export const LAYERS = [
  { id: "heat", name: "Heat map", mark: "▦", about: "soft mask from 0 to 1" },
  { id: "outline", name: "Outline", mark: "◌", about: "where the soft mask crosses the threshold" },
  { id: "plus", name: "X+ only", mark: "⊕", about: "what the classifier sees of the foreground" },
  { id: "minus", name: "X− only", mark: "⊖", about: "what the classifier sees of the background" },
  { id: "uncertainty", name: "Uncertainty", mark: "≈", about: "entropy of the soft mask, highest at 0.5" },
  { id: "truth", name: "Truth", mark: "┅", about: "outline of the true mask, dashed" },
];

// Entropy in bits of a pixel that is foreground with probability value / 255, scaled to 255.
const ENTROPY = Uint8Array.from({ length: 256 }, (_, value) => {
  const p = value / 255;
  return value === 0 || value === 255 ? 0 : Math.round(-255 * (p * Math.log2(p) + (1 - p) * Math.log2(1 - p)));
});

// How each layer colours a value of the soft mask: writes RGBA at `at`.
function painter(kind, mean) {
  const coloured = (colours, of) => (rgba, at, value) => {
    const index = 3 * of(value);
    rgba[at] = colours[index];
    rgba[at + 1] = colours[index + 1];
    rgba[at + 2] = colours[index + 2];
    rgba[at + 3] = 255;
  };
  // image * mask + mean * (1 - mask): masked pixels get the mean colour, as in the network's input
  const masked = (alpha) => (rgba, at, value) => {
    rgba[at] = mean[0];
    rgba[at + 1] = mean[1];
    rgba[at + 2] = mean[2];
    rgba[at + 3] = alpha(value);
  };
  return {
    heat: coloured(viridis, (value) => value),
    uncertainty: coloured(cividis, (value) => ENTROPY[value]),
    plus: masked((value) => 255 - value),
    minus: masked((value) => value),
  }[kind];
}

// The layer as a canvas of the mask's size.
export function paintLayer(kind, mask, mean) {
  const canvas = new OffscreenCanvas(mask.width, mask.height);
  const context = canvas.getContext("2d");
  const picture = context.createImageData(mask.width, mask.height);
  const paint = painter(kind, mean);
  for (let i = 0; i < mask.values.length; i++) paint(picture.data, 4 * i, mask.values[i]);
  context.putImageData(picture, 0, 0);
  return canvas;
}
