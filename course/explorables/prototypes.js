// A query among three prototypes: the softmax over squared distances pushes it from the expected one to the true one.
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 80, SEEN = 22;

export function compute({ numbers: [T], points: [f, ...prototypes] }) {
  const logits = prototypes.map((c) => -((f[0] - c[0]) ** 2 + (f[1] - c[1]) ** 2) / T), top = Math.max(...logits);
  const e = logits.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0), p = e.map((v) => v / sum);
  const expected = [0, 1].map((k) => p.reduce((a, v, i) => a + v * prototypes[i][k], 0));
  const force = [0, 1].map((k) => (2 / T) * (prototypes[0][k] - expected[k]));
  return { value: top + Math.log(sum) - logits[0], p, own: p[0], expected, force, length: Math.hypot(...force) };
}

const drawing = () => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines), at = ([x, y]) => [UNIT * x, -UNIT * y];
  return {
    below, move: plane({ unit: UNIT, low: -1.8, high: 1.8, step: 0.05 }),
    draw({ p, expected, force }, { points }) {
      const [q, ...c] = points.map(at), mean = at(expected), own = c[0];
      lines.replaceChildren(
        ...c.map(([x2, y2], i) => node("line", { x1: q[0], y1: q[1], x2, y2, class: `c${i}`, style: "stroke: var(--own)", "stroke-width": (10 * p[i]).toFixed(2), opacity: 0.45 })),
        node("line", { x1: mean[0], y1: mean[1], x2: own[0], y2: own[1], style: "stroke: var(--soft)", "stroke-dasharray": "4 4" }),
        node("circle", { cx: mean[0], cy: mean[1], r: 6, style: "fill: none; stroke: var(--soft); stroke-width: 2" }),
        ...arrow(q, [SEEN * force[0], -SEEN * force[1]]));
    },
    said({ p, length, force }, { points: [f, own] }) {
      if (length < 0.02) return "Certain and right: no force.";
      const to = [own[0] - f[0], own[1] - f[1]], cos = (force[0] * to[0] + force[1] * to[1]) / (length * Math.hypot(...to) || 1);
      const off = Math.round((Math.acos(Math.max(-1, Math.min(1, cos))) * 180) / Math.PI);
      return `P ${p.map((v) => short(v, 2)).join(", ")}. The force points ${off}° beside the way to the own prototype.`;
    },
    about: ({ p }, i) => (i ? `probability ${short(p[i - 1], 2)}` : "of class 0"),
    tables: () => [["Probabilities", ["class", "P"], [0, 1, 2].map((i) => [`${i}`, [`p.${i}`]])],
      ["Expected prototype, and force", ["", "x", "y"], [["expected", ["expected.0"], ["expected.1"]], ["force", ["force.0"], ["force.1"]]]]],
    key: [[bar("var(--ink)", "force on the query"), bar("var(--soft)", "ring: the expected prototype")], "Width of a line: the probability of that class."],
  };
};

export const mount = on(drawing);
export default widget(mount);
