// The density of distances on a sphere of d dimensions, and how many random points lie nearer than a handle.
import { along, node, on, short, widget } from "./stage.js";

const GRID = 2000, LEFT = -140, WIDE = 280, BASE = 90, HIGH = 200;

export function compute({ numbers: [dimensions], points: [[reach]] }) {
  const d = Math.round(dimensions), D = Array.from({ length: GRID }, (_, k) => ((k + 0.5) * 2) / GRID);
  const logs = D.map((v) => (d - 2) * Math.log(v) + ((d - 3) / 2) * Math.log(1 - v * v / 4)), top = Math.max(...logs);
  const e = logs.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0), share = e.map((v) => v / sum);
  const mean = share.reduce((a, p, k) => a + p * D[k], 0);
  return {
    d, near: 1e4 * share.reduce((a, p, k) => a + (D[k] <= reach ? p : 0), 0), mean, r: reach / mean,
    spread: Math.sqrt(share.reduce((a, p, k) => a + p * (D[k] - mean) ** 2, 0)), q: share.filter((_, k) => k % 10 === 0).map((p) => (p * GRID) / 2),
  };
}

const x = (D) => LEFT + (WIDE * D) / 2;

const drawing = () => {
  const all = node("path", { style: "fill: var(--line); stroke: var(--soft)" }), near = node("path", { style: "fill: var(--pull); fill-opacity: .75" });
  const edge = node("path", { style: "stroke: var(--pull)", "stroke-width": 1.5 });
  const tick = (D, text) => [node("path", { class: "axis", d: `M${x(D)} ${BASE}v6` }), node("text", { x: x(D), y: BASE + 22 }, text)];
  const below = node("g", { "aria-hidden": "true" }, all, near, edge, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }),
    ...tick(0, "0"), ...tick(1, "1"), ...tick(Math.SQRT2, "√2"), ...tick(2, "2"), node("text", { x: 0, y: BASE + 42 }, "distance from the anchor"));
  return {
    below, box: "-156 -130 312 270",
    move: along({ from: [x(0), BASE], to: [x(2), BASE], low: 0.02, high: 2, step: 0.01 }),
    draw({ q }, { points: [[reach]] }) {
      const top = Math.max(...q), at = q.map((v, k) => [x((10 * k + 0.5) * 2 / GRID), BASE - (HIGH * v) / top]);
      const area = (part) => (part.length ? `M${part[0][0]} ${BASE}${part.map(([a, b]) => `L${a.toFixed(1)} ${b.toFixed(1)}`).join("")}L${part.at(-1)[0]} ${BASE}z` : "");
      all.setAttribute("d", area(at));
      near.setAttribute("d", area(at.filter(([a]) => a <= x(reach))));
      edge.setAttribute("d", `M${x(reach)} ${BASE}V${BASE - HIGH}`);
    },
    said: ({ d, near }, { points: [[reach]] }) => `In ${d} dimensions ${near < 0.5 ? "hardly any" : short(near, 3)} of 10,000 random points lie nearer than ${short(reach, 3)}.`,
    about: ({ near }) => `${short(near, 3)} of 10,000 lie nearer`,
    tables: () => [["Distances", ["", ""], [["dimensions", ["d"]], ["mean", ["mean"]], ["spread", ["spread"]]]]],
    key: ["The area is the share of points at each distance; blue are those nearer than the handle. Each curve is drawn to one height."],
  };
};

export const mount = on(drawing);
export default widget(mount);
