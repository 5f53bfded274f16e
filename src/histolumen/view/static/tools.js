// One tool at a time gets the pointer; without a tool the image is panned and zoomed.

import { Brush } from "./brush.js";
import { Measure } from "./scale.js";
import { byId } from "./state.js";

export class Tools {
  constructor(stage, onSaved) {
    this.stage = stage;
    this.measure = new Measure(stage);
    this.brush = new Brush(stage, (saved, note) => {
      this.choose(null);
      if (saved) onSaved(note);
    });
    this.active = null;
    this.#listen(byId("tool-surface"));
    byId("measure").addEventListener("click", () => this.toggle("measure"));
    byId("brush").addEventListener("click", () => this.toggle("brush"));
  }

  toggle(name) {
    this.choose(this.active === name ? null : name);
  }

  choose(name) {
    if (this.active === name) return;
    if (this.active === "brush") this.brush.stop();
    if (this.active === "measure") this.measure.clear();
    this.active = name;
    byId("tool-surface").hidden = !name;
    byId("brush-card").hidden = name !== "brush";
    for (const tool of ["measure", "brush"]) byId(tool).setAttribute("aria-pressed", String(tool === name));
    byId("status").textContent = name === "measure" ? "drag to measure a length; Esc ends" : "";
    if (name === "brush") {
      this.stage.setSplit([]);
      this.brush.start();
    }
  }

  draw(context, view, drawCorrection) {
    this.brush.draw(context, view, drawCorrection);
    this.measure.draw(context, view);
  }

  #listen(surface) {
    let pressed = false;
    let panning = false; // the other mouse buttons move the image
    const at = (event) => this.stage.toImage(event.clientX, event.clientY);
    surface.addEventListener("contextmenu", (event) => event.preventDefault());
    surface.addEventListener("pointerdown", (event) => {
      surface.setPointerCapture(event.pointerId);
      panning = event.button > 0;
      pressed = !panning;
      if (pressed) this[this.active]?.down(at(event));
    });
    surface.addEventListener("pointermove", (event) => {
      if (panning) this.stage.panBy(event.movementX, event.movementY);
      else if (pressed) this[this.active]?.move(at(event));
      if (this.active === "brush") this.brush.hover(at(event));
    });
    for (const end of ["pointerup", "pointercancel"]) {
      surface.addEventListener(end, () => {
        if (!pressed) return (panning = false);
        pressed = false;
        return this[this.active]?.up();
      });
    }
    surface.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.stage.zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }
}
