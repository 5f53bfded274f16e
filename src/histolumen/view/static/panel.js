// The panel beside the image: class, evidence on X+ and X-, layers, downloads.

import { itemUrl, predictionUrl } from "./api.js";
import { classMark } from "./colours.js";
import { LAYERS } from "./layers.js";
import { predictionOf } from "./masks.js";
import { byId, element, onChange, runOf, state, update } from "./state.js";

function bars(title, note, probabilities, classes) {
  const top = Math.max(...Object.values(probabilities));
  const rows = classes.map((name) => {
    const value = probabilities[name];
    const mark = classMark(classes, name);
    const bar = element("div", { className: "bar" });
    bar.dataset.class = mark.dataset.class;
    bar.append(
      element("span", { className: "label" }, mark, ` ${name}`),
      element("progress", { max: 1, value, ariaLabel: `${name} ${value.toFixed(2)}` }),
      element("span", { className: "value" }, value.toFixed(2)),
    );
    return bar;
  });
  const sure = top >= 0.8 ? "sure" : top >= 0.65 ? "rather unsure" : "unsure";
  return [element("h3", { title: note }, title, element("span", { className: "quiet" }, sure)), ...rows];
}

// How the prediction went: { progress }, { problem }, or the stored result.
export function showAnswer({ progress, problem } = {}) {
  const { detail } = state;
  const card = byId("answer");
  if (!detail) return card.replaceChildren(element("p", { className: "quiet" }, "Choose an image from the list, or drop one onto the page."));
  const size = `${detail.width} × ${detail.height} pixels${detail.mpp ? `, ${detail.mpp.toPrecision(3)} µm each` : ""}`;
  const facts = [detail.label && `true class: ${detail.label}`, detail.split && `${detail.split} split`].filter(Boolean).join(" · ");
  const heading = [element("div", { className: "file" }, element("b", {}, detail.name), element("br"), element("span", { className: "quiet small" }, size, facts && element("br"), facts))];
  const run = runOf(state.run);
  const found = run && predictionOf(state.run)?.result;
  card.setAttribute("aria-busy", String(Boolean(progress)));
  if (problem) heading.push(element("p", { className: "problem" }, `⚠ ${problem}`), element("button", { type: "button", id: "predict-again" }, "Try again"));
  else if (!run) heading.push(element("p", { className: "quiet" }, "No model is loaded. Start with a run: histolumen view RUN"));
  else if (progress) heading.push(waiting(progress));
  else if (!found && detail.kind === "slide") heading.push(element("button", { type: "button", id: "predict-slide", className: "primary" }, "Predict this slide"));
  else if (found) heading.push(...verdict(found, run));
  card.replaceChildren(...heading);
}

function waiting({ state: phase, activity, done, total, before }) {
  const text = phase === "waiting" ? (before ? `waiting, ${before} before this one` : activity) : total ? `${activity}: ${done} of ${total}` : activity;
  const bar = element("progress");
  if (total) Object.assign(bar, { max: total, value: done });
  return element("div", { className: "waiting" }, element("p", {}, text), bar);
}

// Whether the image is like the training images, and what is wrong with it.
function doubts({ unlike_training: unlike, warnings }) {
  if (warnings.length) return element("ul", { className: "doubts", id: "doubts" }, ...warnings.map((text) => element("li", {}, `⚠ ${text}`)));
  const text = unlike === null ? "not known whether it is like the training images: an earlier model" : `like the training images (distance ${unlike.toFixed(2)} of the limit)`;
  return element("p", { className: "quiet small", id: "doubts" }, text);
}

function verdict(found, run) {
  if (!run.classifies) return [element("p", {}, `${run.method}: mask only, no class`), doubts(found)];
  const parts = [
    element("p", { className: "verdict", id: "verdict" }, classMark(run.classes, found.label), found.label, element("span", { className: "number" }, found.probabilities[found.label]?.toFixed(2) ?? "")),
  ];
  const evidence = element("div", { className: "evidence" });
  if (found.on_foreground) {
    evidence.append(...bars("On X+, the foreground", "the image with the background masked out", found.on_foreground, run.classes));
    evidence.append(...bars("On X−, the background", "the image with the foreground masked out", found.on_background, run.classes));
    evidence.append(element("p", { className: "quiet small" }, "If the mask holds everything that decided, the class is sure on X+ and unsure on X−."));
  } else {
    evidence.append(...bars("Class probabilities", "of the whole slide", found.probabilities, run.classes));
  }
  return [...parts, doubts(found), evidence];
}

function renderLayers() {
  byId("layers").replaceChildren(
    ...LAYERS.map(({ id, name, mark, about }, index) => {
      const button = element("button", { type: "button", className: "layer", title: `${about} (${index + 1})`, id: `layer-${id}` });
      button.setAttribute("aria-pressed", String(state.layers[id]));
      button.disabled = id === "truth" ? !state.detail?.has_truth : !predictionOf(state.run);
      button.append(element("span", { className: "mark" }, mark), name, element("kbd", {}, String(index + 1)));
      button.addEventListener("click", () => toggleLayer(id));
      return button;
    }),
  );
}

export function toggleLayer(id) {
  if (byId(`layer-${id}`).disabled) return;
  const layers = { ...state.layers, [id]: !state.layers[id] };
  if (id === "heat" && layers.heat) layers.uncertainty = false; // one colour map at a time
  if (id === "uncertainty" && layers.uncertainty) layers.heat = false;
  update({ layers });
}

function renderSliders() {
  byId("opacity-value").textContent = state.opacity.toFixed(2);
  byId("threshold-value").textContent = state.threshold.toFixed(2);
  byId("opacity").value = String(Math.round(100 * state.opacity));
  byId("threshold").value = String(Math.round(100 * state.threshold));
  const found = predictionOf(state.run);
  byId("area").textContent = found ? found.drawn.outline(state.threshold).share.toFixed(3) : "–";
}

function renderDownloads() {
  const { detail, run, threshold } = state;
  const link = (text, url, id) => {
    const made = element("a", { className: "button", textContent: `↓ ${text}`, id, download: "" });
    if (url) made.href = url;
    else made.setAttribute("aria-disabled", "true");
    return made;
  };
  const ready = detail && predictionOf(run);
  const at = (file) => ready && `${predictionUrl(detail.id, run, file)}?threshold=${threshold}`;
  const links = [
    link("Mask", at("mask.png"), "download-mask"),
    link("Overlay", at("overlay.png"), "download-overlay"),
    link("GeoJSON", at("regions.geojson"), "download-geojson"),
  ];
  if (detail?.corrected) {
    if (detail.kind !== "slide") links.push(link("Corrected mask", itemUrl(detail.id, "correction.png"), "download-correction"));
    links.push(link("Corrected GeoJSON", itemUrl(detail.id, "correction.geojson"), "download-correction-geojson"));
  }
  byId("downloads").replaceChildren(...links);
}

export function startPanel() {
  byId("opacity").addEventListener("input", (event) => update({ opacity: event.target.value / 100 }));
  byId("threshold").addEventListener("input", (event) => update({ threshold: event.target.value / 100 }));
  onChange(["layers", "detail", "run", "prediction"], renderLayers);
  onChange(["opacity", "threshold", "detail", "run", "prediction"], renderSliders);
  onChange(["detail", "run", "prediction", "threshold"], renderDownloads);
}
