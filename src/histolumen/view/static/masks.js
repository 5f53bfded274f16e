// Predictions of the open item: fetched once per run, with their painted layers and outlines.

import { getMask, itemUrl, predictItem, predictionUrl } from "./api.js";
import { shareFrom, tracePath } from "./contour.js";
import { paintLayer } from "./layers.js";
import { runOf, state } from "./state.js";

const KEPT = 8; // items whose masks stay in the browser, so that going back is quick

// A mask with everything that is drawn from it, computed when it is first needed.
export class DrawnMask {
  constructor(mask, mean = [128, 128, 128]) {
    this.mask = mask;
    this.mean = mean;
    this.painted = new Map();
    this.outlined = { level: null, path: null, share: 0 };
  }

  layer(kind) {
    if (!this.painted.has(kind)) this.painted.set(kind, paintLayer(kind, this.mask, this.mean));
    return this.painted.get(kind);
  }

  // Outline and area at a threshold in (0, 1).
  outline(threshold) {
    const level = threshold * 255;
    if (this.outlined.level !== level) {
      this.outlined = { level, path: tracePath(this.mask, level), share: shareFrom(this.mask, level) };
    }
    return this.outlined;
  }
}

const kept = new Map();

function remember(key, value) {
  kept.delete(key);
  kept.set(key, value);
  while (kept.size > KEPT) kept.delete(kept.keys().next().value);
}

// The prediction of an item by a run: { result, drawn }.
export async function loadPrediction(id, run, onProgress, signal, again) {
  const key = `${id} ${run}`;
  if (!kept.has(key)) {
    const result = await predictItem(id, run, onProgress, signal, again);
    const mask = await getMask(predictionUrl(id, run, "soft_mask.png"), signal);
    remember(key, { result, drawn: new DrawnMask(mask, runOf(run).mean_colour) });
  }
  return kept.get(key);
}

export const predictionOf = (run) => (state.detail ? kept.get(`${state.detail.id} ${run}`) : undefined);

export async function loadTruth(detail, signal) {
  const key = `${detail.id} truth`;
  if (!kept.has(key)) remember(key, new DrawnMask(await getMask(itemUrl(detail.id, "truth.png"), signal)));
  return kept.get(key);
}

export const truthOf = () => (state.detail ? kept.get(`${state.detail.id} truth`) : undefined);
