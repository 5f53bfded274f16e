// Comparison: a curtain with one prediction on its left and another, or the plain image, on its right.

import { predictionOf } from "./masks.js";
import { byId, element, onChange, runOf, state, update } from "./state.js";

function place(share) {
  update({ curtain: Math.min(Math.max(share, 0), 1) });
}

// The name of a run and what it predicts for the open item.
function describe(id) {
  const found = predictionOf(id)?.result;
  const answer = found?.label ? `: ${found.label} ${found.probabilities[found.label]?.toFixed(2) ?? ""}` : "";
  return `${runOf(id)?.name ?? ""}${answer}`;
}

function render() {
  const active = Boolean(state.compare);
  byId("curtain").hidden = !active;
  byId("curtain").style.left = `${100 * state.curtain}%`;
  byId("curtain").setAttribute("aria-valuenow", String(Math.round(100 * state.curtain)));
  for (const side of ["left", "right"]) byId(`curtain-${side}`).hidden = !active;
  byId("curtain-left").textContent = `◂ ${describe(state.run)}`;
  byId("curtain-right").textContent = `${state.compare === "image" ? "plain image" : describe(state.compare)} ▸`;
}

function renderChoices() {
  const title = (run) => `${run.name} (${run.method})`;
  byId("run").replaceChildren(...state.runs.map((run) => element("option", { value: run.id, textContent: title(run) })));
  byId("run").value = state.run ?? "";
  const others = state.runs.filter((run) => run.id !== state.run);
  byId("compare").replaceChildren(
    element("option", { value: "", textContent: "off" }),
    element("option", { value: "image", textContent: "with the plain image" }),
    ...others.map((run) => element("option", { value: run.id, textContent: `with ${title(run)}` })),
  );
  byId("compare").value = state.compare;
  byId("compare-card").hidden = state.runs.length === 0;
}

export function toggleCurtain() {
  const other = state.runs.find((run) => run.id !== state.run)?.id ?? "image";
  update({ compare: state.compare ? "" : other });
}

export function startCurtain() {
  const curtain = byId("curtain");
  const drag = (event) => {
    const box = byId("stage").getBoundingClientRect();
    place((event.clientX - box.left) / box.width);
  };
  curtain.addEventListener("pointerdown", (event) => {
    curtain.setPointerCapture(event.pointerId);
    curtain.addEventListener("pointermove", drag);
  });
  curtain.addEventListener("pointerup", () => curtain.removeEventListener("pointermove", drag));
  curtain.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
    if (step) {
      event.stopPropagation();
      place(state.curtain + step);
    }
  });
  byId("compare").addEventListener("input", (event) => update({ compare: event.target.value }));
  byId("run").addEventListener("input", (event) => {
    const run = event.target.value;
    update({ run, compare: state.compare === run ? "" : state.compare });
  });
  onChange(["compare", "curtain", "run", "runs", "prediction", "detail"], render);
  onChange(["compare", "run", "runs"], renderChoices);
}
