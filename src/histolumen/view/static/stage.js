// The zoomable image: one OpenSeadragon viewer, or two that move together, each under a canvas for the layers.

import { tileUrl } from "./api.js";

const NAVIGATOR_FROM = 6000; // longest side in pixels from which an overview map is shown

function makePane(element) {
  const viewer = OpenSeadragon({
    element,
    drawer: "canvas",
    showNavigationControl: false,
    showNavigator: true,
    navigatorPosition: "TOP_RIGHT",
    animationTime: 0.35,
    springStiffness: 9,
    maxZoomPixelRatio: 32,
    minZoomImageRatio: 0.7,
    visibilityRatio: 0.4,
    viewportMargins: { left: 10, top: 10, right: 10, bottom: 66 }, // the toolbar is below the image
    immediateRender: true,
    gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
    gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true },
  });
  viewer.addHandler("canvas-key", (event) => (event.preventDefaultAction = true)); // keyboard.js has its own keys
  const canvas = document.createElement("canvas");
  canvas.className = "overlay";
  element.append(canvas);
  const title = document.createElement("span");
  title.className = "tag pane-title";
  title.hidden = true;
  element.append(title);
  return { element, viewer, canvas, title };
}

export class Stage {
  // `draw(context, pane number, view)` paints the layers; the context is in pixels of the image.
  constructor(draw, onMove) {
    this.draw = draw;
    this.onMove = onMove;
    this.panes = [makePane(document.querySelector("#pane-0"))];
    this.detail = null;
    this.source = null;
    this.pending = false;
    this.leader = this.panes[0]; // the pane that is moved; the other one follows
    this.#follow(this.panes[0]);
    new ResizeObserver(() => this.redraw()).observe(document.querySelector("#stage"));
  }

  get main() {
    return this.panes[0].viewer;
  }

  get split() {
    return !document.querySelector("#pane-1").hidden;
  }

  open(detail) {
    this.detail = detail;
    this.source = {
      width: detail.width,
      height: detail.height,
      tileSize: detail.tile,
      minLevel: detail.min_level,
      maxLevel: detail.max_level,
      getTileUrl: (level, x, y) => tileUrl(detail.id, level, x, y),
    };
    const large = Math.max(detail.width, detail.height) >= NAVIGATOR_FROM;
    return Promise.all(
      this.panes.map(({ viewer }) => {
        viewer.navigator.element.hidden = !large;
        return new Promise((resolve) => {
          viewer.addOnceHandler("open", () => resolve(this.redraw()));
          viewer.open(this.source);
        });
      }),
    );
  }

  // Show one pane or two; each has a title while there are two.
  setSplit(titles) {
    const second = document.querySelector("#pane-1");
    if ((titles.length === 2) === second.hidden) this.#stayHome();
    if (titles.length === 2 && second.hidden) {
      second.hidden = false;
      if (!this.panes[1]) {
        this.panes.push(makePane(second));
        this.#follow(this.panes[1]);
      }
      const { viewer } = this.panes[1];
      viewer.navigator.element.hidden = true;
      viewer.addOnceHandler("open", () => this.#copyView(this.panes[0], this.panes[1]));
      if (this.source) viewer.open(this.source);
    } else if (titles.length !== 2 && !second.hidden) {
      second.hidden = true;
    }
    this.panes.forEach(({ title }, number) => {
      title.hidden = titles.length !== 2;
      title.textContent = titles[number] ?? "";
    });
    this.redraw();
  }

  zoomBy(factor) {
    this.leader = this.panes[0];
    this.main.viewport?.zoomBy(factor).applyConstraints();
  }

  panBy(x, y) {
    this.main.viewport?.panBy(this.main.viewport.deltaPointsFromPixels(new OpenSeadragon.Point(-x, -y)));
  }

  home() {
    this.leader = this.panes[0];
    this.main.viewport?.goHome();
  }

  // Position in the image, in its pixels, of a point on the page.
  toImage(clientX, clientY) {
    const box = this.panes[0].element.getBoundingClientRect();
    const { x, y, scale } = this.view(this.panes[0]);
    return { x: (clientX - box.left - x) / scale, y: (clientY - box.top - y) / scale };
  }

  // Where the image is in a pane: offset and pixels of the page per pixel of the image.
  view({ viewer }) {
    const item = viewer.world.getItemAt(0);
    if (!item) return { x: 0, y: 0, scale: 1 };
    const origin = item.imageToViewerElementCoordinates(new OpenSeadragon.Point(0, 0));
    const corner = item.imageToViewerElementCoordinates(new OpenSeadragon.Point(this.detail.width, 0));
    return { x: origin.x, y: origin.y, scale: (corner.x - origin.x) / this.detail.width };
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#paint();
    });
  }

  // If the whole image is shown, show it again at the new size of the panes.
  #stayHome() {
    const { viewport } = this.main;
    if (!viewport || Math.abs(viewport.getZoom() / viewport.getHomeZoom() - 1) > 0.01) return;
    this.leader = this.panes[0];
    this.main.addOnceHandler("resize", () => requestAnimationFrame(() => viewport.goHome(true)));
  }

  #paint() {
    this.panes.forEach((pane, number) => {
      if (pane.element.hidden || !pane.viewer.world.getItemAt(0)) return;
      const ratio = window.devicePixelRatio || 1;
      const [width, height] = [pane.element.clientWidth, pane.element.clientHeight].map((side) => Math.round(side * ratio));
      if (pane.canvas.width !== width || pane.canvas.height !== height) Object.assign(pane.canvas, { width, height });
      const context = pane.canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, width, height);
      const view = this.view(pane);
      context.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
      this.draw(context, number, { ...view, width: width / ratio, height: height / ratio });
    });
    if (this.detail) this.onMove(this.view(this.panes[0]));
  }

  #follow(pane) {
    pane.viewer.addHandler("update-viewport", () => this.redraw());
    for (const event of ["pointerenter", "pointerdown"]) {
      pane.element.addEventListener(event, () => (this.leader = pane), { capture: true });
    }
    pane.viewer.addHandler("viewport-change", () => {
      const other = this.panes.find((each) => each !== pane);
      if (this.split && other && this.leader === pane) this.#copyView(pane, other);
    });
  }

  #copyView(from, to) {
    if (!from.viewer.viewport || !to.viewer.viewport) return;
    to.viewer.viewport.zoomTo(from.viewer.viewport.getZoom(), null, true);
    to.viewer.viewport.panTo(from.viewer.viewport.getCenter(), true);
  }
}
