// The list of images and slides: thumbnails, badges, filter and sort.

import { thumbnailUrl } from "./api.js";
import { classMark } from "./colours.js";
import { byId, element, onChange, runOf, state } from "./state.js";

const UNSURE = 0.8; // predictions below this probability count as unsure

const rows = new Map(); // item id -> { element, fingerprint }
let shown = []; // items in the order of the list
let open = () => {};

const prediction = (item) => item.predictions[state.run];
const isWrong = (item) => Boolean(item.label && prediction(item)?.label && prediction(item).label !== item.label);

function filters() {
  const classes = runOf(state.run)?.classes ?? [];
  return [
    ["", "all", () => true],
    ...classes.map((name) => [`class ${name}`, `predicted ${name}`, (item) => prediction(item)?.label === name]),
    ["wrong", "wrong class", isWrong],
    ["warned", "with warnings", (item) => Boolean(prediction(item)?.warnings.length)],
    ["unsure", `probability < ${UNSURE}`, (item) => (prediction(item)?.probability ?? 1) < UNSURE],
    ["corrected", "corrected", (item) => item.corrected],
    ["test", "test split", (item) => item.split === "test"],
    ["slide", "slides", (item) => item.kind === "slide"],
  ];
}

const ORDERS = {
  name: () => 0,
  unsure: (a, b) => (prediction(a)?.probability ?? 2) - (prediction(b)?.probability ?? 2),
  sure: (a, b) => (prediction(b)?.probability ?? -1) - (prediction(a)?.probability ?? -1),
  unlike: (a, b) => (prediction(b)?.unlike_training ?? -1) - (prediction(a)?.unlike_training ?? -1),
  share: (a, b) => (prediction(b)?.foreground_share ?? -1) - (prediction(a)?.foreground_share ?? -1),
};

function badges(item) {
  const found = prediction(item);
  const made = [];
  if (found?.label) {
    const classes = runOf(state.run).classes;
    made.push(element("span", { className: "badge" }, classMark(classes, found.label), `${found.label} ${found.probability?.toFixed(2) ?? ""}`));
  } else if (found) {
    made.push(element("span", { className: "badge" }, `area ${found.foreground_share.toFixed(2)}`));
  } else if (item.failure) {
    made.push(element("span", { className: "badge wrong", title: item.failure }, "⚠ unreadable"));
  } else if (state.run !== null) {
    made.push(element("span", { className: "badge quiet" }, item.kind === "slide" ? "not predicted" : "waiting …"));
  }
  if (found?.warnings.length) {
    const text = found.unlike_training > 1 ? "⚠ unlike training" : "⚠ check image";
    made.push(element("span", { className: "badge doubt", title: found.warnings.join("\n") }, text));
  }
  if (isWrong(item)) made.push(element("span", { className: "badge wrong", title: "the true label" }, `✗ ${item.label}`));
  if (item.corrected) made.push(element("span", { className: "badge", title: "a corrected mask is saved" }, "✎"));
  if (item.kind !== "image") made.push(element("span", { className: "badge" }, item.kind));
  return made;
}

function row(item) {
  const fingerprint = JSON.stringify([prediction(item), item.failure, item.corrected, state.run]);
  const known = rows.get(item.id);
  if (known?.fingerprint === fingerprint) return known.element;
  const button = element("button", { type: "button", className: "item", title: item.name });
  button.dataset.id = item.id;
  button.append(
    known?.element.querySelector("img") ?? element("img", { src: thumbnailUrl(item.id), alt: "", loading: "lazy", width: 64, height: 64 }),
    element("span", {}, element("span", { className: "name" }, item.name), element("span", { className: "badges" }, ...badges(item))),
  );
  button.addEventListener("click", () => open(item.id));
  rows.set(item.id, { element: element("li", {}, button), fingerprint });
  return rows.get(item.id).element;
}

function render() {
  const wanted = byId("search").value.trim().toLowerCase();
  const passes = filters().find(([id]) => id === byId("filter").value)?.[2] ?? (() => true);
  shown = state.items.filter((item) => item.name.toLowerCase().includes(wanted) && passes(item));
  shown = shown.toSorted(ORDERS[byId("sort").value]);
  byId("items").replaceChildren(...shown.map(row));
  const total = `${state.items.length} item${state.items.length === 1 ? "" : "s"}`;
  byId("count").textContent = shown.length === state.items.length ? total : `${shown.length} of ${total}`;
  mark();
}

function mark() {
  for (const { element: line } of rows.values()) {
    const button = line.firstChild;
    button.setAttribute("aria-current", String(button.dataset.id === state.detail?.id));
  }
}

function renderFilters() {
  const select = byId("filter");
  const chosen = select.value;
  select.replaceChildren(...filters().map(([value, text]) => element("option", { value, textContent: text })));
  select.value = chosen;
}

// The item after (1) or before (-1) the open one, in the order of the list.
export function neighbour(step) {
  const at = shown.findIndex((item) => item.id === state.detail?.id);
  return shown[Math.min(Math.max(at + step, 0), shown.length - 1)]?.id;
}

export function startList(openItem) {
  open = openItem;
  for (const id of ["search", "filter", "sort"]) byId(id).addEventListener("input", render);
  onChange(["runs"], renderFilters);
  onChange(["items", "run"], render);
  onChange(["detail"], () => {
    mark();
    const button = rows.get(state.detail?.id)?.element;
    button?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
