// What the reader sees: pictures, the plane, a search, curves. It knows no loss.

export const TAU = 2 * Math.PI;
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b8508c", "#b07d00", "#3a8fc4", "#7a4fbf", "#8c6d31", "#b3261e", "#5b5b66"];
const DARK = ["#56b4e9", "#ff9a4d", "#3ccfa2", "#e39ac6", "#f0b93a", "#9cc2ff", "#b79cf0", "#c9ab6e", "#ff8f86", "#b4b4c0"];
export const dark = matchMedia("(prefers-color-scheme: dark)");
const colors = () => (dark.matches ? DARK : LIGHT);
/** A color of look.css as a canvas takes it: resolved for light or dark. */
function css(name) {
  const canvas = document.getElementById("plane");
  canvas.style.color = `var(${name})`;
  return getComputedStyle(canvas).color;
}

export function node(tag, attributes = {}, ...children) {
  const drawn = ["svg", "line", "polyline", "text", "rect"].includes(tag);
  const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ---- pictures

/** Pictures of bytes (N, channels, side, side) as canvases: gray ones are drawn in ink on paper. */
export function pictures(bytes, channels, side) {
  const area = side * side, ink = dark.matches ? 236 : 27, made = new Map();
  return (place) => {
    if (made.has(place)) return made.get(place);
    const canvas = node("canvas", { width: side, height: side }), context = canvas.getContext("2d");
    const image = context.createImageData(side, side), at = (c, j) => bytes[(place * channels + c) * area + j];
    for (let j = 0; j < area; j++) {
      image.data.set(channels === 3 ? [at(0, j), at(1, j), at(2, j), 255] : [ink, ink, ink, at(0, j)], 4 * j);
    }
    context.putImageData(image, 0, 0);
    made.set(place, canvas);
    return canvas;
  };
}

// ---- directions

/** Unit rows (N, d) of a flat array of rows of `dim` numbers. */
export function directions(points, dim, d) {
  return Array.from({ length: points.length / dim }, (_, i) => {
    const row = Array.from(points.subarray(i * dim, i * dim + d)), length = Math.hypot(...row) || 1;
    return row.map((v) => v / length);
  });
}
export const dot = (a, b) => a.reduce((sum, v, i) => sum + v * b[i], 0);

/** The two axes along which unit rows reach farthest, near those of the last picture, so that nothing jumps. */
export function axes(rows, [u, v]) {
  const toward = (axis) => rows.reduce((sum, row) => { const s = dot(row, axis); return sum.map((x, i) => x + s * row[i]); }, axis.map(() => 0));
  const unit = (axis) => { const length = Math.hypot(...axis) || 1; return axis.map((x) => x / length); };
  for (let k = 0; k < 3; k++) {
    u = unit(toward(u));
    const w = toward(v), off = dot(w, u);
    v = unit(w.map((x, i) => x - off * u[i]));
  }
  return [u, v];
}

// ---- the plane

/** Where the pictures of classes stand around the circle: at their angles, but not on each other. */
function apart(angles, gap) {
  const at = [...angles], order = [...at.keys()].sort((a, b) => at[a] - at[b]);
  for (let pass = 0; pass < 40; pass++) {
    order.forEach((i, k) => {
      const j = order[(k + 1) % order.length], lack = Math.max(0, gap - (at[j] + (k + 1 === order.length ? TAU : 0) - at[i])) / 2;
      at[i] -= lack; at[j] += lack;
    });
  }
  return at;
}

/** Draw unseen images as dots, and return where they are in CSS pixels. */
export function plane(canvas, { rows, dim, view, turn, ofEach, picture, chosen, neighbors }) {
  const side = canvas.clientWidth, ratio = devicePixelRatio || 1, context = canvas.getContext("2d");
  if (canvas.width !== Math.round(side * ratio)) canvas.width = canvas.height = Math.round(side * ratio);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, side, side);
  const middle = side / 2, r = side * 0.36, size = side * 0.075, palette = colors();
  context.lineWidth = 1; context.strokeStyle = css("--line");
  context.beginPath(); context.arc(middle, middle, r, 0, TAU); context.stroke();
  if (dim === 3) {
    for (const tilt of [0, 1]) {
      context.beginPath();
      for (let k = 0; k <= 60; k++) {
        const a = (k / 60) * TAU, [x, y] = turn(tilt ? [0, Math.cos(a), Math.sin(a)] : [Math.cos(a), 0, Math.sin(a)]);
        context.lineTo(middle + r * x, middle - r * y);
      }
      context.stroke();
    }
  }
  const spots = rows.map((row, i) => {
    const lane = dim === 2 ? 1 + 0.016 * (Math.floor(i / ofEach) - 4.5) : 1; // on a circle each class has a ring of its own
    const [x, y, z = 0] = dim === 2 ? row : dim === 3 ? turn(row) : [dot(row, view[0]), dot(row, view[1])];
    return [middle + r * lane * x, middle - r * lane * y, z];
  });
  if (chosen !== null) {
    context.strokeStyle = css("--soft");
    for (const j of neighbors) { context.beginPath(); context.moveTo(spots[chosen][0], spots[chosen][1]); context.lineTo(spots[j][0], spots[j][1]); context.stroke(); }
  }
  for (const i of [...spots.keys()].sort((a, b) => spots[a][2] - spots[b][2])) {
    const [x, y, z] = spots[i];
    context.globalAlpha = dim === 3 && z < 0 ? 0.35 : 0.9;
    context.fillStyle = palette[Math.floor(i / ofEach)];
    context.beginPath(); context.arc(x, y, side * 0.0105, 0, TAU); context.fill();
  }
  context.globalAlpha = 1;
  if (chosen !== null) { context.strokeStyle = css("--ink"); context.lineWidth = 2; context.beginPath(); context.arc(spots[chosen][0], spots[chosen][1], side * 0.02, 0, TAU); context.stroke(); }
  // A picture of each class, beside the middle of its dots.
  const count = rows.length / ofEach, middles = Array.from({ length: count }, (_, c) => {
    const own = spots.slice(c * ofEach, (c + 1) * ofEach);
    return [0, 1].map((k) => own.reduce((sum, spot) => sum + spot[k], 0) / ofEach - middle);
  });
  const angles = apart(middles.map(([x, y]) => Math.atan2(y, x)), size * 1.4 / (side * 0.445));
  context.imageSmoothingEnabled = false;
  angles.forEach((angle, c) => {
    const x = middle + side * 0.445 * Math.cos(angle) - size / 2, y = middle + side * 0.445 * Math.sin(angle) - size / 2;
    context.fillStyle = css("--paper"); context.fillRect(x, y, size, size);
    context.drawImage(picture(c * ofEach), x, y, size, size);
    context.strokeStyle = palette[c]; context.lineWidth = 2; context.strokeRect(x, y, size, size);
  });
  return spots;
}

// ---- curves and a histogram

const WIDE = 320, HIGH = 100, LEFT = 34, BOTTOM = 16;
const nice = (v) => (Math.abs(v) >= 100 ? v.toFixed(0) : Number(v.toPrecision(2)).toString());

/** Curves against step: each {name, tone, values: [[step, value], …]}; `lines` are fixed values by their names. Those of the past are drawn as far as the others, or to step 100. */
export function chart(title, curves, past, lines, [low, high]) {
  const last = Math.max(100, ...curves.flatMap(({ values }) => values.map(([k]) => k)));
  const before = past.map(({ tone, values }) => ({ tone, values: values.filter(([k]) => k <= last) })), all = [...curves, ...before].flatMap(({ values }) => values);
  const seen = all.map(([, v]) => v).filter(Number.isFinite);
  const top = high ?? (seen.length ? Math.max(1e-3, ...seen) * 1.05 : 1), under = low ?? Math.min(0, ...seen);
  const x = (k) => LEFT + ((WIDE - LEFT) * k) / last, y = (v) => 4 + (HIGH - BOTTOM - 4) * (1 - (v - under) / (top - under));
  const svg = node("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}, ${curves.map(({ name, values }) => `${name || "now"} ${values.length ? nice(values.at(-1)[1]) : "none yet"}`).join(", ")}` });
  const line = (values, kind) => node("polyline", { class: kind, points: values.filter(([, v]) => Number.isFinite(v)).map(([k, v]) => `${x(k).toFixed(1)},${y(v).toFixed(1)}`).join(" ") });
  svg.append(node("line", { class: "axis", x1: LEFT, x2: WIDE, y1: y(under), y2: y(under) }), node("line", { class: "axis", x1: LEFT, x2: LEFT, y1: 4, y2: y(under) }),
    ...Object.values(lines).map((v) => line([[0, v], [last, v]], "fixed")),
    ...before.map(({ values, tone }) => line(values, `past ${tone}`)), ...curves.map(({ values, tone }) => line(values, tone)));
  const words = node("div", { class: "words" }, node("span", { class: "top" }, nice(top)), node("span", { class: "low" }, nice(under)), node("span", { class: "first" }, "step 0"), node("span", { class: "last" }, String(last)));
  return node("figure", { class: "chart" }, node("figcaption", {}, title,
    ...curves.filter(({ name }) => name).map(({ name, tone }) => node("span", { class: `key ${tone}` }, name)), ...Object.entries(lines).map(([name, v]) => node("span", { class: "key fixed" }, `${name} ${nice(v)}`))), node("div", { class: "frame" }, svg, words));
}

/** How many images have a norm within each twentieth of the range from 0. */
export function histogram(title, values, past) {
  const top = Math.max(1e-6, ...values, ...past) * 1.02, bins = (list) => list.reduce((sum, v) => { sum[Math.floor((20 * v) / top)]++; return sum; }, Array(20).fill(0));
  const now = bins(values), most = Math.max(...now, ...bins(past)), mean = values.reduce((a, b) => a + b, 0) / values.length;
  const spread = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length);
  const told = `mean ${nice(mean)}, standard deviation ${nice(spread)} (${((100 * spread) / mean).toFixed(0)} % of it)`;
  const svg = node("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${told}` });
  const w = (WIDE - LEFT) / 20, h = (n) => ((HIGH - BOTTOM - 4) * n) / most;
  svg.append(...now.map((n, i) => node("rect", { x: LEFT + i * w + 0.5, width: w - 1, y: HIGH - BOTTOM - h(n), height: h(n) })),
    node("line", { class: "axis", x1: LEFT, x2: WIDE, y1: HIGH - BOTTOM, y2: HIGH - BOTTOM }));
  if (past.length) svg.append(node("polyline", { class: "past a", points: bins(past).flatMap((n, i) => [`${LEFT + i * w},${HIGH - BOTTOM - h(n)}`, `${LEFT + (i + 1) * w},${HIGH - BOTTOM - h(n)}`]).join(" ") }));
  const words = node("div", { class: "words" }, node("span", { class: "first" }, "0"), node("span", { class: "last" }, nice(top)));
  return node("figure", { class: "chart" }, node("figcaption", {}, title, node("span", {}, told)), node("div", { class: "frame" }, svg, words));
}
