// Two weights, of color and of shape, embed views of four photographs on a circle: what do the views make of the weights?
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const COLOR = [-1.5, -0.5, 0.5, 1.5], SHAPE = [0.5, -1.5, 1.5, -0.5], SIGNS = [[1, 1, -1, -1], [1, -1, 1, -1]];
const SHAPE_CHANGE = 0.3, TEMPERATURE = 0.5, UNIT = 62, HIGH = 1.8, CENTER = 232, RADIUS = 92, RATE = 0.06;
const OTHER = (i) => (i + 4) % 8;

export function compute({ choice, numbers: [change], points: [w] }) {
  const seen = [1, -1].flatMap((s) => COLOR.map((c, i) => [c + s * change * SIGNS[0][i], SHAPE[i] + s * SHAPE_CHANGE * SIGNS[1][i]]));
  const angles = seen.map(([c, h]) => w[0] * c + w[1] * h), gradient = [0, 0];
  let value = 0;
  const add = (i, k, weight) => { // the gradient of weight times a cosine
    const turn = -Math.sin(angles[i] - angles[k]) * weight;
    for (const d of [0, 1]) gradient[d] += turn * (seen[i][d] - seen[k][d]);
  };
  seen.forEach((_, i) => {
    const own = Math.cos(angles[i] - angles[OTHER(i)]);
    if (choice === "pull") { value += (1 - own) / 8; add(i, OTHER(i), -1 / 8); return; }
    const e = angles.map((a, k) => (k === i ? 0 : Math.exp((Math.cos(angles[i] - a) - 1) / TEMPERATURE))), sum = e.reduce((a, b) => a + b, 0);
    value += (Math.log(sum) + (1 - own) / TEMPERATURE) / 8;
    e.forEach((v, k) => k !== i && add(i, k, (v / sum - (k === OTHER(i))) / TEMPERATURE / 8));
  });
  return { value, gradient, angles: angles.map((a) => (a * 180) / Math.PI) };
}

const INKS = ["var(--a)", "var(--b)", "var(--c)", "var(--ink)"];
const drawing = () => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines), end = HIGH * UNIT;
  const text = (x, y, words) => node("text", { x, y, "text-anchor": "middle" }, words);
  const spot = (degrees, r = RADIUS) => { const a = (degrees * Math.PI) / 180; return [CENTER + r * Math.cos(a), -r * Math.sin(a)]; };
  return {
    below, box: "-122 -138 456 282", css: "svg text { font-size: 16px; }", move: plane({ unit: UNIT, low: -HIGH, high: HIGH, step: 0.02 }),
    draw({ gradient, angles }, { points: [w] }) {
      lines.replaceChildren(
        node("path", { class: "axis", d: `M${-end} 0H${end}M0 ${end}V${-end}` }), node("circle", { class: "axis", cx: CENTER, cy: 0, r: RADIUS, style: "fill: none" }),
        text(end - 40, 20, "weight of color"), text(0, -end - 8, "weight of shape"), text(CENTER, end + 18, "embeddings"),
        ...arrow([UNIT * w[0], -UNIT * w[1]], gradient.map((g, d) => (d ? 1 : -1) * 40 * g)),
        ...COLOR.map((_, i) => node("line", { x1: spot(angles[i])[0], y1: spot(angles[i])[1], x2: spot(angles[i + 4])[0], y2: spot(angles[i + 4])[1], style: `stroke: ${INKS[i]}; stroke-width: 3`, opacity: 0.6 })),
        ...angles.map((a, k) => node("circle", { cx: spot(a)[0], cy: spot(a)[1], r: 6, style: `fill: ${k < 4 ? INKS[k] : "var(--panel)"}; stroke: ${INKS[k % 4]}; stroke-width: 2.5` })));
    },
    said({ value, angles }, { points: [w] }) {
      const apart = COLOR.map((_, i) => Math.abs(((angles[i] - angles[i + 4] + 540) % 360) - 180)), most = Math.max(...apart);
      return `Weight of color ${short(w[0], 2)}, of shape ${short(w[1], 2)}: loss ${short(value, 3)}. Two views of a photograph are up to ${Math.round(most)}° apart.`;
    },
    about: (_, i) => (i ? "" : "weights of color and of shape"),
    tables: () => [["Angles of the views (°)", ["photograph", "first view", "second view"], COLOR.map((_, i) => [`${i + 1}`, [`angles.${i}`], [`angles.${i + 4}`]])],
      ["Gradient", ["weight of color", "of shape"], [[["gradient.0"], ["gradient.1"]]]]],
    key: [INKS.map((ink, i) => bar(ink, `photograph ${i + 1}`)), "Full and hollow: its two views. The arrow: where the loss falls."],
    play: {
      label: "Train",
      begin() {},
      step({ gradient }, { points: [w] }) {
        return Math.hypot(...gradient) < 4e-3 ? null : [w.map((v, d) => Math.max(-HIGH, Math.min(HIGH, v - RATE * gradient[d])))];
      },
    },
  };
};

export const mount = on(drawing);
export default widget(mount);
