// Outlines of a mask at a threshold: marching squares, linked into closed rings.

let next = new Int32Array(0); // outgoing segment of each crossed edge; reused between calls

// Edges of a cell clockwise from the top: which of the corners a b c d (8 4 2 1) each goes from and to.
const CORNERS = [[8, 4], [4, 2], [2, 1], [1, 8]];
// For each combination of corners inside: pairs of edges [leaving the inside, entering it].
const SEGMENTS = Array.from({ length: 16 }, (_, code) => {
  const leaves = (edge) => code & CORNERS[edge][0] && !(code & CORNERS[edge][1]);
  const enters = (edge) => !(code & CORNERS[edge][0]) && code & CORNERS[edge][1];
  const pairs = [];
  for (let edge = 0; edge < 4; edge++) {
    if (!leaves(edge)) continue;
    let other = (edge + 1) % 4;
    while (!enters(other)) other = (other + 1) % 4;
    pairs.push(edge, other);
  }
  return pairs;
});

// A Path2D in pixels of the mask whose closed rings separate values >= level from the others.
export function tracePath({ width, height, values }, level) {
  const path = new Path2D();
  const across = width + 2; // a border of zeros closes every ring
  const count = across * (height + 2);
  const padded = new Uint8Array(count);
  for (let y = 0; y < height; y++) padded.set(values.subarray(y * width, (y + 1) * width), (y + 1) * across + 1);
  if (next.length < 2 * count) next = new Int32Array(2 * count);
  next.fill(-1, 0, 2 * count);
  const starts = [];
  for (let y = 0; y <= height; y++) {
    for (let x = 0; x <= width; x++) {
      const at = y * across + x;
      const code =
        (padded[at] >= level ? 8 : 0) | (padded[at + 1] >= level ? 4 : 0) |
        (padded[at + across + 1] >= level ? 2 : 0) | (padded[at + across] >= level ? 1 : 0);
      if (code === 0 || code === 15) continue;
      // horizontal edges are numbered by their left end, vertical ones by count + their upper end
      const edges = [at, count + at + 1, at + across, count + at];
      const segments = SEGMENTS[code];
      for (let k = 0; k < segments.length; k += 2) {
        next[edges[segments[k]]] = edges[segments[k + 1]];
        starts.push(edges[segments[k]]);
      }
    }
  }
  const clamp = (value, limit) => Math.min(Math.max(value, 0), limit);
  const visit = (edge, first) => {
    const vertical = edge >= count;
    const a = vertical ? edge - count : edge;
    const b = a + (vertical ? across : 1);
    const share = (level - padded[a]) / (padded[b] - padded[a]);
    const x = clamp((a % across) - 0.5 + (vertical ? 0 : share), width);
    const y = clamp(Math.floor(a / across) - 0.5 + (vertical ? share : 0), height);
    if (first) path.moveTo(x, y);
    else path.lineTo(x, y);
  };
  for (const start of starts) {
    if (next[start] < 0) continue;
    visit(start, true);
    for (let edge = start; next[edge] >= 0;) {
      const following = next[edge];
      next[edge] = -1;
      edge = following;
      if (edge !== start) visit(edge, false);
    }
    path.closePath();
  }
  return path;
}

// Share of the pixels that are >= level.
export function shareFrom({ values }, level) {
  let inside = 0;
  for (let i = 0; i < values.length; i++) inside += values[i] >= level;
  return inside / values.length;
}
