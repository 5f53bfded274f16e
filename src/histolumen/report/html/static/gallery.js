// Galleries: one slider fades all pictures from layer to layer, and a click enlarges one of them.
(() => {
  "use strict";
  document.documentElement.classList.add("scripted");
  const dialog = document.getElementById("enlarged");
  const holder = document.getElementById("enlarged-picture");
  let shown = null;

  function fade(gallery, position, root = gallery) {
    for (const layer of root.querySelectorAll(".layer")) {
      const own = Number(layer.dataset.layer);
      const opacity = own === 0 ? 1 : Math.min(1, Math.max(0, position - own + 1)); // each layer covers those below it
      layer.style.opacity = String(opacity);
      layer.style.visibility = opacity > 0 ? "visible" : "hidden";
    }
  }

  function move(gallery, position) {
    const nearest = Math.round(position);
    for (const controls of document.querySelectorAll(".controls")) {
      if (controls.gallery !== gallery) continue;
      const slider = controls.querySelector(".fade");
      slider.value = String(position);
      const buttons = controls.querySelectorAll(".stops button");
      buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === nearest)));
      slider.setAttribute("aria-valuetext", buttons[nearest].textContent);
    }
    gallery.position = position;
    fade(gallery, position);
    if (shown && shown.closest(".gallery") === gallery) fade(gallery, position, holder);
  }

  function connect(controls, gallery) {
    controls.gallery = gallery;
    controls.classList.toggle("many", controls.querySelectorAll(".stops button").length > 5);
    controls.querySelector(".fade").addEventListener("input", (event) => move(gallery, Number(event.target.value)));
    for (const button of controls.querySelectorAll(".stops button")) {
      button.addEventListener("click", () => move(gallery, Number(button.dataset.layer)));
    }
  }

  function shape(stack) {
    const image = stack.querySelector("img");
    const [width, height] = [image.getAttribute("width"), image.getAttribute("height")];
    stack.style.setProperty("--shape", `${width} / ${height}`);
    stack.style.setProperty("--ratio", String(width / height));
  }

  function enlarge(card) {
    const gallery = card.closest(".gallery");
    shown = card;
    const stack = card.querySelector(".stack").cloneNode(true);
    holder.replaceChildren(stack, card.querySelector("figcaption").cloneNode(true));
    shape(stack);
    document.getElementById("enlarged-title").textContent = card.querySelector("figcaption b").textContent;
    const controls = gallery.querySelector(".controls").cloneNode(true);
    controls.querySelector(".fade").id = "enlarged-fade";
    controls.querySelector("label").htmlFor = "enlarged-fade";
    document.getElementById("enlarged-controls").replaceChildren(controls);
    connect(controls, gallery);
    move(gallery, gallery.position);
    if (!dialog.open) dialog.showModal();
  }

  function step(by) {
    const cards = [...shown.closest(".gallery").querySelectorAll(".card")];
    enlarge(cards[(cards.indexOf(shown) + by + cards.length) % cards.length]);
  }

  for (const gallery of document.querySelectorAll(".gallery")) {
    gallery.querySelectorAll(".stack").forEach(shape);
    connect(gallery.querySelector(".controls"), gallery);
    gallery.querySelectorAll(".card").forEach((card) => card.querySelector(".enlarge").addEventListener("click", () => enlarge(card)));
    move(gallery, Number(gallery.dataset.start));
  }
  dialog.querySelectorAll("[data-step]").forEach((button) => button.addEventListener("click", () => step(Number(button.dataset.step))));
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    if (event.target.matches("input")) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
})();
