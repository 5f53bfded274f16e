// Draws the layers over the image, in each pane and on both sides of the curtain.

import { CORRECTION, OUTLINE, TRUTH } from "./colours.js";
import { predictionOf, truthOf } from "./masks.js";
import { state } from "./state.js";

// A line of constant width on the screen with a light halo, visible on dark and on pale tissue.
function strokePath(context, path, colour, pixel, dashes = []) {
  context.setLineDash([]);
  context.lineJoin = "round";
  context.strokeStyle = "rgb(255 255 255 / 85%)";
  context.lineWidth = 4.5 * pixel;
  context.stroke(path);
  context.setLineDash(dashes.map((length) => length * pixel));
  context.strokeStyle = colour;
  context.lineWidth = 2.2 * pixel;
  context.stroke(path);
  context.setLineDash([]);
}

// Run `paint` with the context scaled from pixels of the image to pixels of a mask.
function inMask(context, mask, paint) {
  context.save();
  context.scale(state.detail.width / mask.width, state.detail.height / mask.height);
  paint();
  context.restore();
}

function drawRun(context, run, layers, scale) {
  const drawn = predictionOf(run)?.drawn;
  if (!drawn) return;
  const { mask } = drawn;
  inMask(context, mask, () => {
    context.imageSmoothingEnabled = true;
    for (const kind of ["heat", "uncertainty", "plus", "minus"]) {
      if (!layers[kind]) continue;
      context.globalAlpha = kind === "plus" || kind === "minus" ? 1 : state.opacity;
      context.drawImage(drawn.layer(kind), 0, 0);
    }
    context.globalAlpha = 1;
    const pixel = mask.width / state.detail.width / scale; // a pixel of the screen in pixels of the mask
    if (layers.outline) strokePath(context, drawn.outline(state.threshold).path, OUTLINE, pixel);
  });
}

// Paint everything into one pane. `extra` draws the tools: correction, measured line.
export function drawScene(context, number, view, extra) {
  const layers = { ...state.layers };
  if (layers.plus && layers.minus) {
    layers[number === 0 ? "minus" : "plus"] = false; // side by side: X+ left, X- right
  }
  const within = (left, right, paint) => {
    context.save();
    context.beginPath();
    context.rect((left - view.x) / view.scale, -view.y / view.scale, (right - left) / view.scale, view.height / view.scale);
    context.clip();
    paint();
    context.restore();
  };
  const edge = state.compare ? state.curtain * view.width : view.width;
  within(0, edge, () => drawRun(context, state.run, layers, view.scale));
  if (state.compare && state.compare !== "image") {
    within(edge, view.width, () => drawRun(context, state.compare, layers, view.scale));
  }
  const truth = truthOf();
  if (layers.truth && truth) {
    inMask(context, truth.mask, () => {
      const pixel = truth.mask.width / state.detail.width / view.scale;
      strokePath(context, truth.outline(0.5).path, TRUTH, pixel, [7, 5]);
    });
  }
  if (number === 0) extra(context, view, (mask, path, picture) => drawCorrection(context, mask, path, picture, view));
}

function drawCorrection(context, mask, path, picture, view) {
  inMask(context, mask, () => {
    context.globalAlpha = 0.35;
    context.drawImage(picture, 0, 0);
    context.globalAlpha = 1;
    strokePath(context, path, CORRECTION, mask.width / state.detail.width / view.scale);
  });
}
