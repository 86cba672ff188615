// One step of a free embedding: an arrow from the origin, the optimizer's step at its tip, and where it is then.
import { arrow, bar, node, on, plane, short, spot, widget } from "./stage.js";

const UNIT = 40, OLD = "var(--ink)", STEP = "var(--push)", NEW = "var(--soft)", TURN = "var(--pull)";

export function compute({ choice, numbers: [rate], points: [[x, y]] }) {
  const n = Math.max(Math.hypot(x, y), 1e-9), g = [y / n ** 2, -x / n ** 2];
  const step = g.map((v) => -rate * (choice === "adam" ? Math.sign(v) : v)), after = [x + step[0], y + step[1]];
  const turn = (Math.atan2(x * after[1] - y * after[0], x * after[0] + y * after[1]) * 180) / Math.PI;
  return { norm: n, gradient: Math.hypot(...g), length: Math.hypot(...step), turn, after: Math.hypot(...after), step };
}

const drawing = () => {
  const rings = node("g"), below = node("g", { "aria-hidden": "true" }, rings);
  const line = (from, by, ink) => arrow(from.map((v, k) => (k ? -UNIT : UNIT) * v), by.map((v, k) => (k ? -UNIT : UNIT) * v), 0)
    .map((path) => { path.setAttribute("style", `fill: ${ink}; stroke: ${ink}`); return path; });
  const arc = (n, turn, x, y) => {
    const begin = (Math.atan2(y, x) * 180) / Math.PI, r = 0.5 * UNIT * n;
    const [[a, b], [c, d]] = [spot(begin, r), spot(begin + turn, r)];
    return node("path", { d: `M${a} ${b}A${r} ${r} 0 0 ${turn > 0 ? 0 : 1} ${c} ${d}`, fill: "none", stroke: TURN, "stroke-width": 3 });
  };
  return {
    below, box: "-156 -156 312 312", move: plane({ unit: UNIT, low: -3, high: 3, step: 0.05 }),
    draw({ norm, turn, step }, { points: [[x, y]] }) {
      rings.replaceChildren(
        node("circle", { class: "ring", r: UNIT * norm, "stroke-dasharray": "2 4" }), node("circle", { r: 2.5, fill: NEW }),
        arc(norm, turn, x, y), ...line([0, 0], [x + step[0], y + step[1]], NEW), ...line([0, 0], [x, y], OLD), ...line([x, y], step, STEP));
    },
    said({ norm, after, turn }) {
      const change = after > norm + 1e-6 ? "longer" : after < norm - 1e-6 ? "shorter" : "as long as before";
      return `The step turns f by ${short(turn, 3)}°, and f is ${change}.`;
    },
    about: ({ norm, turn }) => `norm ${short(norm, 3)}, turns by ${short(turn, 3)} degrees`,
    tables: () => [["The step", ["", "length"], [["gradient, G/n with G = 1", ["gradient"]], ["step", ["length"]], ["f before", ["norm"]], ["f after", ["after"]]]]],
    key: [[bar(OLD, "f"), bar(STEP, "step"), bar(NEW, "f after it")], "Dotted: the circle of the old norm. The loss asks for a turn to the left, as hard everywhere (G = 1)."],
  };
};

export const mount = on(drawing);
export default widget(mount);
