// Starts the page: connects list, image, panel and tools.

import { getItem, getItems } from "./api.js";
import { cividis, paintBar, viridis } from "./colours.js";
import { startCurtain, toggleCurtain } from "./curtain.js";
import { startKeyboard } from "./keyboard.js";
import { neighbour, startList } from "./list.js";
import { loadPrediction, loadTruth } from "./masks.js";
import { showAnswer, startPanel, toggleLayer } from "./panel.js";
import { renderScaleBar } from "./scale.js";
import { drawScene } from "./scene.js";
import { Stage } from "./stage.js";
import { byId, onChange, state, update } from "./state.js";
import { Tools } from "./tools.js";
import { startUploads } from "./upload.js";

const POLL_MILLISECONDS = 1500; // and 2 more per item: long lists are asked for less often
let polling; // while images are predicted in the background
let loading = new AbortController(); // requests for the open item

const stage = new Stage((context, pane, view) => drawScene(context, pane, view, (...rest) => tools.draw(...rest)), renderScaleBar);
const tools = new Tools(stage, async (note) => {
  await refresh();
  update({ detail: { ...state.detail, corrected: true } });
  byId("status").textContent = note;
});

async function refresh() {
  const { items, runs, predicted, to_predict: total } = await getItems();
  update({ items });
  if (JSON.stringify(runs.map((run) => run.id)) !== JSON.stringify(state.runs.map((run) => run.id))) {
    update({ runs, run: runs[0]?.id ?? null });
    byId("run-names").textContent = runs.map((run) => `${run.name} (${run.method})`).join(" · ");
  }
  byId("empty").hidden = items.length > 0;
  if (predicted < total) {
    clearTimeout(polling);
    polling = setTimeout(() => refresh().catch(lost), POLL_MILLISECONDS + 2 * items.length);
  }
  byId("background").textContent = predicted < total ? `predicting: ${predicted} of ${total}` : "";
}

function lost(problem) {
  byId("status").textContent = `⚠ ${problem.message}; is the viewer still running?`;
}

async function open(id) {
  if (!id || id === state.detail?.id) return;
  loading.abort();
  loading = new AbortController();
  tools.choose(null);
  try {
    const detail = await getItem(id);
    update({ detail });
    history.replaceState(null, "", `#${id}`);
    await Promise.all([stage.open(detail), predict()]);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (state.detail?.id === id) showAnswer({ problem: problem.message });
    else byId("status").textContent = `⚠ ${problem.message}`;
  }
}

// Load the predictions that are shown, and the truth. Slides are predicted only on request.
async function predict(asked = false, again = false) {
  const { detail, run, compare } = state;
  const { signal } = loading;
  const ready = detail.predictions[run] || detail.kind !== "slide" || asked;
  showAnswer(run !== null && ready ? { progress: { state: "running", activity: "loading" } } : {});
  if (detail.has_truth) loadTruth(detail, signal).then(() => stage.redraw(), () => {});
  if (run === null || !ready) return update({ prediction: null });
  try {
    await loadPrediction(detail.id, run, (progress) => state.detail === detail && showAnswer({ progress }), signal, again);
    if (state.detail?.id !== detail.id) return;
    showAnswer();
    update({ prediction: run });
    const listed = state.items.find((item) => item.id === detail.id);
    if (listed && !listed.predictions[run]) refresh().catch(lost);
    if (compare && compare !== "image") {
      await loadPrediction(detail.id, compare, () => {}, signal);
      update({ prediction: compare });
    }
  } catch (problem) {
    if (problem.name !== "AbortError") showAnswer({ problem: problem.message });
  }
}

function showLegend() {
  const { heat, uncertainty } = state.layers;
  byId("legend").hidden = !heat && !uncertainty;
  byId("legend-title").textContent = heat ? "soft mask" : "uncertainty (bits)";
  paintBar(byId("legend-colours"), heat ? viridis : cividis);
}

startList(open);
startPanel();
startCurtain();
startKeyboard({ step: (by) => open(neighbour(by)), toggleLayer, toggleCurtain, stage, tools });
startUploads(async (item) => {
  await refresh();
  await open(item.id);
});
byId("previous").addEventListener("click", () => open(neighbour(-1)));
byId("next").addEventListener("click", () => open(neighbour(1)));
byId("zoom-in").addEventListener("click", () => stage.zoomBy(1.4));
byId("zoom-out").addEventListener("click", () => stage.zoomBy(1 / 1.4));
byId("zoom-home").addEventListener("click", () => stage.home());
byId("answer").addEventListener("click", ({ target: { id } }) => id === "predict-slide" ? predict(true) : id === "predict-again" && predict(true, true));
onChange(["layers"], () => {
  showLegend();
  stage.setSplit(state.layers.plus && state.layers.minus ? ["X+ foreground", "X− background"] : []);
});
onChange(["layers", "opacity", "threshold", "prediction", "curtain", "compare", "run", "detail"], () => stage.redraw());
onChange(["run", "compare"], () => state.detail && predict());

showAnswer();
try {
  await refresh();
  update({ layers: state.layers });
  const wanted = location.hash.slice(1);
  await open(state.items.some((item) => item.id === wanted) ? wanted : neighbour(0) ?? state.items[0]?.id);
} catch (problem) {
  lost(problem);
}
