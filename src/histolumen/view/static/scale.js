// The scale bar, and measuring a length: in micrometres where the resolution is known, else in pixels.

import { byId, state } from "./state.js";

const LONGEST = 140; // of the scale bar, in pixels of the screen

// A length in pixels of the image as text.
export function lengthText(pixels) {
  const { mpp } = state.detail;
  if (!mpp) return `${pixels.toFixed(pixels < 10 ? 1 : 0)} px`;
  const microns = pixels * mpp;
  return microns >= 1000 ? `${(microns / 1000).toPrecision(3)} mm` : `${microns.toPrecision(3)} µm`;
}

// The largest of 1, 2, 5, 10, 20, ... that is not above `limit`.
function round125(limit) {
  const power = 10 ** Math.floor(Math.log10(limit));
  return [5, 2, 1].map((factor) => factor * power).find((value) => value <= limit);
}

export function renderScaleBar(view) {
  const unit = state.detail.mpp ?? 1;
  const length = round125((LONGEST / view.scale) * unit); // in micrometres or pixels
  byId("scale-bar").hidden = false;
  byId("scale-line").style.width = `${(length / unit) * view.scale}px`;
  const text = state.detail.mpp ? (length >= 1000 ? `${length / 1000} mm` : `${length} µm`) : `${length} px`;
  byId("scale-text").textContent = text;
}

export class Measure {
  constructor(stage) {
    this.stage = stage;
    this.line = null;
  }

  down(point) {
    this.line = { from: point, to: point };
    this.stage.redraw();
  }

  move(point) {
    this.line.to = point;
    this.stage.redraw();
  }

  up() {}

  clear() {
    this.line = null;
    this.stage.redraw();
  }

  get pixels() {
    return Math.hypot(this.line.to.x - this.line.from.x, this.line.to.y - this.line.from.y);
  }

  draw(context, view) {
    if (!this.line || !this.pixels) return;
    const pixel = 1 / view.scale;
    const { from, to } = this.line;
    for (const [colour, width] of [["#fff", 5], ["#111", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = width * pixel;
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.lineTo(to.x, to.y);
      context.stroke();
    }
    context.font = `600 ${14 * pixel}px system-ui, sans-serif`;
    context.lineWidth = 4 * pixel;
    context.strokeStyle = "#fff";
    context.fillStyle = "#111";
    const text = lengthText(this.pixels);
    const [x, y] = [(from.x + to.x) / 2 + 8 * pixel, (from.y + to.y) / 2 - 8 * pixel];
    context.strokeText(text, x, y);
    context.fillText(text, x, y);
    byId("measure").title = text;
    byId("status").textContent = `length: ${text}`;
  }
}
