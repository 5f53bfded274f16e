// Requests to the viewer's server, and to no other.

export class Refused extends Error {}

async function checked(response) {
  if (response.ok) return response;
  let detail = `${response.status} ${response.statusText}`;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch {
    // not JSON: the status says enough
  }
  throw new Refused(typeof detail === "string" ? detail : JSON.stringify(detail));
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export async function getItems() {
  return (await checked(await fetch("/api/items"))).json();
}

export async function getItem(id) {
  return (await checked(await fetch(`/api/items/${id}`))).json();
}

export const thumbnailUrl = (id) => `/api/items/${id}/thumbnail.jpg`;
export const tileUrl = (id, level, x, y) => `/api/items/${id}/tiles/${level}/${x}_${y}.jpg`;
export const predictionUrl = (id, run, file) => `/api/items/${id}/predictions/${run}/${file}`;
export const itemUrl = (id, file) => `/api/items/${id}/${file}`;

// Predict an item; `onProgress` receives the state while it waits or runs. A full queue is asked again.
// `again` repeats a prediction that failed.
export async function predictItem(id, run, onProgress, signal, again = false) {
  for (let first = again; ; first = false) {
    const response = await fetch(`/api/items/${id}/predictions/${run}${first ? "?retry=true" : ""}`, { method: "POST", signal });
    if ([429, 503].includes(response.status)) {
      onProgress({ state: "waiting", activity: "the queue is full", before: 0, done: 0, total: 0 });
      await pause(1000 * Number(response.headers.get("Retry-After") ?? 1));
      continue;
    }
    const state = await (await checked(response)).json();
    if (state.state === "done") return state;
    onProgress(state);
  }
}

// A mask as { width, height, values }: one byte per pixel.
export async function getMask(url, signal) {
  const blob = await (await checked(await fetch(url, { signal }))).blob();
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none" });
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const rgba = context.getImageData(0, 0, bitmap.width, bitmap.height).data;
  const values = new Uint8Array(bitmap.width * bitmap.height);
  for (let i = 0; i < values.length; i++) values[i] = rgba[4 * i];
  return { width: bitmap.width, height: bitmap.height, values };
}

// Send an image; `onProgress` receives the share that has been sent.
export function sendImage(file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api/uploads?name=${encodeURIComponent(file.name)}`);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => reject(new Refused("the server cannot be reached"));
    request.onload = () =>
      request.status === 201
        ? resolve(request.response)
        : reject(new Refused(request.response?.detail ?? `${request.status} ${request.statusText}`));
    request.send(file);
  });
}

export async function saveCorrection(id, run, png) {
  const response = await fetch(`/api/items/${id}/correction?run=${run ?? ""}`, { method: "PUT", body: png });
  return (await checked(response)).json();
}
