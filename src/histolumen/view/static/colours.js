// Perceptually uniform colour maps that colour-blind people can read, and the marks of classes.

const VIRIDIS = "440154 481467 482576 453781 404688 39558c 33638d 2d718e 287d8e 238a8d 1f968b 20a386 29af7f 3dbc74 56c667 75d054 95d840 bade28 dde318 fde725";
const CIVIDIS = "00224e 002c64 0c3470 273e6e 38476c 46516c 535a6d 5f636f 6b6d72 777776 828079 908b78 9c9576 aaa073 b8aa6e c6b667 d4c15f e4ce53 f2da44 fee838";

// A table of 256 RGB colours, interpolated between the given ones.
function table(text) {
  const stops = text.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const colours = new Uint8Array(256 * 3);
  for (let value = 0; value < 256; value++) {
    const position = (value / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    for (let channel = 0; channel < 3; channel++) {
      const [a, b] = [stops[low][channel], stops[low + 1][channel]];
      colours[3 * value + channel] = Math.round(a + (b - a) * (position - low));
    }
  }
  return colours;
}

export const viridis = table(VIRIDIS);
export const cividis = table(CIVIDIS);

// The same colours as the overlays that `histolumen predict` writes.
export const OUTLINE = "#009e73";
export const TRUTH = "#0072b2";
export const CORRECTION = "#d55e00";

const MARKS = ["●", "▲", "■", "◆", "★", "✚"];

// A mark for a class: its shape tells classes apart without colour. An answer that is no class has an empty circle.
export function classMark(classes, label) {
  const mark = document.createElement("span");
  const index = classes.indexOf(label) % MARKS.length;
  mark.textContent = MARKS[index] ?? "○";
  if (index >= 0) mark.dataset.class = String(index);
  mark.setAttribute("aria-hidden", "true");
  return mark;
}

// Paint a colour map as a horizontal bar.
export function paintBar(canvas, colours) {
  const context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    const value = Math.round((255 * x) / (canvas.width - 1));
    context.fillStyle = `rgb(${colours[3 * value]}, ${colours[3 * value + 1]}, ${colours[3 * value + 2]})`;
    context.fillRect(x, 0, 1, canvas.height);
  }
}
