// New images: dropped onto the page, or chosen from a dialog.

import { sendImage } from "./api.js";
import { byId } from "./state.js";

export function startUploads(onAdded) {
  const send = async (file) => {
    if (!file) return;
    const say = (text) => (byId("status").textContent = text);
    try {
      say(`sending ${file.name} …`);
      const item = await sendImage(file, (share) => say(`sending ${file.name}: ${Math.round(100 * share)} %`));
      say("");
      await onAdded(item);
    } catch (problem) {
      say(`⚠ ${file.name}: ${problem.message}`);
    }
  };
  const carriesFile = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // enter and leave are reported for every element on the way
  const show = () => (byId("drop").hidden = depth <= 0);
  document.addEventListener("dragenter", (event) => {
    if (carriesFile(event)) depth += 1;
    show();
  });
  document.addEventListener("dragleave", (event) => {
    if (carriesFile(event)) depth -= 1;
    show();
  });
  document.addEventListener("dragover", (event) => carriesFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carriesFile(event)) return;
    event.preventDefault();
    depth = 0;
    show();
    send(event.dataTransfer.files[0]);
  });
  byId("add-image").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    send(event.target.files[0]);
    event.target.value = "";
  });
}
