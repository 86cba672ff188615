// Twelve points of three classes in the plane: joined ones attract, all others repel, and they move.
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 26;

export function compute({ points }, { data: { joined, few } }) {
  let within = 0, between = 0, pairs = [0, 0];
  const move = points.map(([x, y], i) => {
    const sum = [0, 0];
    points.forEach(([u, v], j) => {
      if (i === j) return;
      const a = joined[i][j], r2 = (u - x) ** 2 + (v - y) ** 2, r = Math.sqrt(r2 + 1e-12);
      const force = (2 * a) / (1 + r2) - (2 * few * (1 - a)) / ((0.01 + r2) * (1 + r2));
      sum[0] += force * (u - x);
      sum[1] += force * (v - y);
      if (a > 0.5) { within += r; pairs[0] += 1; } else { between += r; pairs[1] += 1; }
    });
    return sum.map((s) => Math.min(4, Math.max(-4, s)));
  });
  return { move, joined: within / pairs[0], others: between / pairs[1] };
}

const drawing = ({ data: { joined } }) => {
  const lines = node("g"), arrows = node("g"), below = node("g", { "aria-hidden": "true" }, lines, arrows), at = ([x, y]) => [UNIT * x, -UNIT * y];
  return {
    below, move: plane({ unit: UNIT, low: -5, high: 5, step: 0.1 }),
    draw({ move }, { points }) {
      const places = points.map(at);
      lines.replaceChildren(...joined.flatMap((row, i) => row.slice(i + 1).map((a, k) => [a, i, i + 1 + k])).filter(([a]) => a > 0).map(([a, i, j]) => node("line", {
        x1: places[i][0], y1: places[i][1], x2: places[j][0], y2: places[j][1], "stroke-width": (4 * a).toFixed(2), style: "stroke: var(--line)" })));
      arrows.replaceChildren(...move.flatMap(([dx, dy], i) => arrow(places[i], [10 * dx, -10 * dy])));
    },
    said: ({ joined: near, others }) => `The mean distance within classes is ${short(near, 2)}, between classes ${short(others, 2)}.`,
    about: ({ move }, i) => `moves by ${short(Math.hypot(...move[i]), 2)}`,
    tables: () => [["Mean distances", ["", "distance"], [["within classes", ["joined"]], ["between classes", ["others"]]]]],
    key: [[bar("var(--line)", "a weight"), bar("var(--ink)", "where a point moves")]],
    play: {
      label: "Let them move",
      begin() {},
      step: ({ move }, { points }) => (Math.max(...move.map((m) => Math.hypot(...m))) < 0.06 ? null
        : points.map((p, i) => p.map((v, k) => Math.min(5, Math.max(-5, v + 0.1 * move[i][k]))))),
    },
  };
};

export const mount = on(drawing);
export default widget(mount);
