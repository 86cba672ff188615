// How many other proxies are nearer to a place than its own: random directions, by dimensions and classes.
import { along, node, on, short, widget } from "./stage.js";

const LEFT = -140, WIDE = 280, BASE = 90, HIGH = 170, FINE = 720, BARS = 36;
const ANGLES = Array.from({ length: FINE }, (_, k) => ((k + 0.5) * 180) / FINE);

export function compute({ numbers: [dims, classes], points: [[theta]] }) {
  const d = Math.round(dims), others = Math.round(classes) - 1, heights = ANGLES.map((a) => Math.sin((a * Math.PI) / 180) ** (d - 2));
  const total = heights.reduce((a, b) => a + b), each = heights.map((h) => (others * h) / total), width = 180 / FINE;
  const inside = ANGLES.map((a) => Math.min(1, Math.max(0, (theta - a) / width + 0.5)));
  return {
    nearer: each.reduce((sum, e, k) => sum + e * inside[k], 0), others, dims: d,
    bars: Array.from({ length: BARS }, (_, b) => each.slice((b * FINE) / BARS, ((b + 1) * FINE) / BARS).reduce((x, y) => x + y)),
  };
}

const x = (degrees) => LEFT + (WIDE * degrees) / 180;

const drawing = () => {
  const bars = node("g"), edge = node("path", { style: "stroke: var(--ink)", "stroke-width": 2 }), name = node("text", { y: BASE - HIGH - 8, "text-anchor": "middle" }, "own proxy");
  const tick = (a) => [node("path", { class: "axis", d: `M${x(a)} ${BASE}v6` }), node("text", { x: x(a), y: BASE + 22, "text-anchor": "middle" }, `${a}°`)];
  const below = node("g", { "aria-hidden": "true" }, bars, edge, name, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }),
    ...[0, 30, 60, 90, 120, 150, 180].flatMap(tick), node("text", { x: 0, y: BASE + 42, "text-anchor": "middle" }, "angle to the place"));
  return {
    below, box: "-156 -112 312 252",
    move: along({ from: [x(0), BASE], to: [x(180), BASE], low: 1, high: 179, step: 1 }),
    draw(answer, { points: [[theta]] }) {
      const top = Math.max(...answer.bars);
      bars.replaceChildren(...answer.bars.map((count, b) => node("rect", {
        x: x(5 * b) + 0.5, y: BASE - (HIGH * count) / top, width: WIDE / BARS - 1, height: (HIGH * count) / top,
        style: `fill: ${5 * b + 2.5 < theta ? "var(--push)" : "var(--line)"}` })));
      edge.setAttribute("d", `M${x(theta)} ${BASE}V${BASE - HIGH}`);
      name.setAttribute("x", Math.min(110, Math.max(-110, x(theta))));
    },
    said: ({ nearer, others, dims }) => `In ${dims} dimensions ${short(nearer, 3)} of ${others} other proxies are nearer to the place than its own.`,
    about: ({ nearer }) => `${short(nearer, 3)} other proxies are nearer`,
    tables: () => [["Other proxies", ["", "count"], [["all", ["others"]], ["nearer than the own one", ["nearer"]]]]],
    key: ["Bars: other proxies by their angle to the place. Orange: nearer than the own one."],
  };
};

export const mount = on(drawing);
export default widget(mount);
