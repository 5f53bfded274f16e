// Correcting the mask with a brush: add, erase, undo, save.

import { getMask, itemUrl, saveCorrection } from "./api.js";
import { CORRECTION } from "./colours.js";
import { tracePath } from "./contour.js";
import { predictionOf } from "./masks.js";
import { byId, state } from "./state.js";

const LONGEST = 2048; // of a mask that starts empty, in pixels
const UNDO = 20;

export class Brush {
  constructor(stage, onEnd) {
    this.stage = stage;
    this.onEnd = onEnd;
    this.mask = null;
    this.adding = true;
    byId("brush-size").addEventListener("input", () => this.#showSize());
    byId("brush-add").addEventListener("click", () => this.#setAdding(true));
    byId("brush-erase").addEventListener("click", () => this.#setAdding(false));
    byId("brush-undo").addEventListener("click", () => this.undo());
    byId("brush-save").addEventListener("click", () => this.save());
    byId("brush-cancel").addEventListener("click", () => this.onEnd(false));
    this.#showSize();
  }

  // Start from the saved correction, else from the mask at the current threshold, else from nothing.
  async start() {
    const { detail } = state;
    this.undone = [];
    this.cursor = null;
    this.mask = await this.#firstMask(detail);
    this.picture = new OffscreenCanvas(this.mask.width, this.mask.height);
    byId("brush-note").textContent = "Draw on the image. Saved beside it, as mask and as GeoJSON for QuPath.";
    this.#repaint();
  }

  stop() {
    this.mask = null;
    this.stage.redraw();
  }

  down(point) {
    if (!this.mask) return;
    this.undone.push(this.mask.values.slice());
    if (this.undone.length > UNDO) this.undone.shift();
    this.last = point;
    this.move(point);
  }

  move(point) {
    if (!this.mask || !this.last) return;
    const radius = this.#radius();
    const scale = this.mask.width / state.detail.width;
    const steps = Math.max(1, Math.ceil((Math.hypot(point.x - this.last.x, point.y - this.last.y) * scale) / Math.max(1, radius / 2)));
    for (let step = 1; step <= steps; step++) {
      const x = this.last.x + ((point.x - this.last.x) * step) / steps;
      const y = this.last.y + ((point.y - this.last.y) * step) / steps;
      this.#stamp(x * scale, y * scale, radius);
    }
    this.last = point;
    this.#repaint();
  }

  up() {
    this.last = null;
  }

  undo() {
    const former = this.undone?.pop();
    if (!former || !this.mask) return;
    this.mask.values = former;
    this.#repaint();
  }

  async save() {
    const button = byId("brush-save");
    button.disabled = true;
    try {
      const { files } = await saveCorrection(state.detail.id, state.run, await this.#toPng());
      this.onEnd(true, `saved ${files.join(" and ")}`);
    } catch (problem) {
      byId("brush-note").textContent = `⚠ not saved: ${problem.message}`;
    } finally {
      button.disabled = false;
    }
  }

  hover(point) {
    this.cursor = point;
    this.stage.redraw();
  }

  draw(context, view, drawCorrection) {
    if (!this.mask) return;
    drawCorrection(this.mask, this.path, this.picture);
    if (!this.cursor) return;
    for (const [colour, width] of [["#fff", 3], ["#111", 1]]) {
      context.strokeStyle = colour;
      context.lineWidth = width / view.scale;
      context.beginPath();
      context.arc(this.cursor.x, this.cursor.y, byId("brush-size").value / 2 / view.scale, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  async #firstMask(detail) {
    if (detail.corrected && detail.kind !== "slide") return getMask(itemUrl(detail.id, "correction.png"));
    const predicted = predictionOf(state.run)?.drawn.mask;
    if (predicted) {
      const level = state.threshold * 255;
      return { ...predicted, values: predicted.values.map((value) => (value >= level ? 255 : 0)) };
    }
    const scale = Math.min(1, LONGEST / Math.max(detail.width, detail.height));
    const [width, height] = [detail.width, detail.height].map((side) => Math.max(1, Math.round(side * scale)));
    return { width, height, values: new Uint8Array(width * height) };
  }

  // Radius in pixels of the mask; the size is chosen in pixels of the screen.
  #radius() {
    const { scale } = this.stage.view(this.stage.panes[0]);
    return Math.max(0.7, (byId("brush-size").value / 2 / scale) * (this.mask.width / state.detail.width));
  }

  #stamp(x, y, radius) {
    const { width, height, values } = this.mask;
    const value = this.adding ? 255 : 0;
    for (let row = Math.max(0, Math.floor(y - radius)); row <= Math.min(height - 1, Math.ceil(y + radius)); row++) {
      for (let column = Math.max(0, Math.floor(x - radius)); column <= Math.min(width - 1, Math.ceil(x + radius)); column++) {
        if ((column + 0.5 - x) ** 2 + (row + 0.5 - y) ** 2 <= radius ** 2) values[row * width + column] = value;
      }
    }
  }

  #repaint() {
    const { width, height, values } = this.mask;
    const context = this.picture.getContext("2d");
    const image = context.createImageData(width, height);
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(CORRECTION.slice(at, at + 2), 16));
    const pixels = new Uint32Array(image.data.buffer);
    const colour = (255 << 24) | (blue << 16) | (green << 8) | red;
    for (let i = 0; i < values.length; i++) if (values[i]) pixels[i] = colour;
    context.putImageData(image, 0, 0);
    this.path = tracePath(this.mask, 128);
    this.stage.redraw();
  }

  #setAdding(adding) {
    this.adding = adding;
    byId("brush-add").setAttribute("aria-pressed", String(adding));
    byId("brush-erase").setAttribute("aria-pressed", String(!adding));
  }

  #showSize() {
    byId("brush-size-value").textContent = `${byId("brush-size").value} px`;
  }

  async #toPng() {
    const { width, height, values } = this.mask;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    for (let i = 0; i < values.length; i++) image.data.set([values[i], values[i], values[i], 255], 4 * i);
    context.putImageData(image, 0, 0);
    return canvas.convertToBlob({ type: "image/png" });
  }
}
