// On the way to one point: nine embeddings on the equator of a sphere seen from above, and the loss against their distances.
import { bar, circle, node, on, rad, short, spot, widget } from "./stage.js";

const R = 100, BASE = 268, HIGH = 110, LEFT = -120, WIDE = 240, N = 9;
const SHRINKS = Array.from({ length: 40 }, (_, k) => (k + 1) / 40), label = (i) => Math.floor(i / 3);
const SETS = [];
for (let a = 0; a < N; a++) for (let b = a + 1; b < N; b++) for (let c = b + 1; c < N; c++) SETS.push([a, b, c]);
const entropy = (counts) => -counts.reduce((all, n) => all + (n ? (n / N) * Math.log(n / N) : 0), 0);
const sum = (values) => values.reduce((a, b) => a + b, 0);

/** Of each choice of medoids: its score, and 1 − NMI of its clusters and the classes. */
function grouped(D) {
  return SETS.map((S) => {
    const joint = Array(9).fill(0), clusters = [0, 0, 0];
    let way = 0;
    for (let i = 0; i < N; i++) {
      const to = S.map((j) => D[i][j]), least = Math.min(...to), g = to.indexOf(least);
      way += least; clusters[g] += 1; joint[3 * g + label(i)] += 1;
    }
    const H = entropy(clusters), classes = entropy([3, 3, 3]);
    return [-way, 1 - (H + classes - entropy(joint)) / Math.sqrt(Math.max(H * classes, 1e-12))];
  });
}

export function compute({ numbers: [s, margin], points }) {
  const turn = points.map(([degrees]) => degrees), D = turn.map((a) => turn.map((b) => 2 * Math.abs(Math.sin(rad(a - b) / 2))));
  const sets = grouped(D), members = [0, 1, 2].map((k) => [3 * k, 3 * k + 1, 3 * k + 2]);
  const own = -sum(members.map((k) => Math.min(...k.map((j) => sum(k.map((i) => D[i][j]))))));
  const cost = (at) => Math.max(0, ...sets.map(([F, differs]) => at * (F - own) + margin * differs));
  const curve = SHRINKS.map(cost);
  return { here: cost(s), start: curve.at(-1), one: margin, curve };
}

const drawing = () => {
  const moved = node("g"), ring = node("circle", { class: "ring" }), plot = node("g"), at = (s) => LEFT + WIDE * s;
  const tick = (s) => [node("path", { class: "axis", d: `M${at(s)} ${BASE}v5` }), node("text", { x: at(s), y: BASE + 19 }, short(s))];
  const below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: R }), ring, moved, plot,
    node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), ...[0, 0.5, 1].flatMap(tick),
    node("text", { x: 0, y: BASE + 37 }, "all distances × s"));
  return {
    below, box: "-156 -132 312 440", move: circle(),
    draw({ here, one, curve }, { numbers: [s], points }) {
      const top = 1.08 * Math.max(one, ...curve), up = (loss) => BASE - (HIGH * loss) / top, ink = (i) => `var(--${"abc"[label(i)]})`;
      ring.setAttribute("r", R * s);
      moved.replaceChildren(...points.flatMap(([degrees], i) => {
        const [[x1, y1], [x2, y2]] = [spot(degrees, R), spot(degrees, R * s)];
        return [node("line", { x1, y1, x2, y2, "stroke-dasharray": "2 3", style: "stroke: var(--line); stroke-width: 1.2" }),
          node("circle", { cx: x2, cy: y2, r: 4.4, style: `fill: ${ink(i)}` })];
      }), node("path", { d: "M-4 0H4M0-4V4", style: "stroke: var(--soft)" }));
      const line = curve.map((loss, k) => `${k ? "L" : "M"}${at(SHRINKS[k])} ${up(loss).toFixed(1)}`).join("");
      plot.replaceChildren(
        node("path", { d: `M${LEFT} ${up(one)}h${WIDE}`, "stroke-dasharray": "5 4", style: "stroke: var(--soft); stroke-width: 1.4" }),
        node("path", { d: line, fill: "none", style: "stroke: var(--pull); stroke-width: 2.5" }),
        node("circle", { cx: LEFT, cy: up(one), r: 5, style: "fill: var(--ink)" }),
        node("circle", { cx: at(s), cy: up(here), r: 6, style: "fill: var(--push)" }));
    },
    said({ here, start, one }) {
      const less = one < start ? "One point costs less than the start" : "One point costs no less than the start";
      return `${less}: ${short(one, 3)} and ${short(start, 3)}. Here the loss is ${short(here, 3)}.`;
    },
    tables: () => [["The loss", ["", "loss"], [["at s", ["here"]], ["half the way, s = 0.5", ["curve.19"]], ["at the start", ["start"]], ["in one point", ["one"]]]]],
    key: [[bar("var(--pull)", "loss"), bar("var(--push)", "at s")], "Above: the sphere from above, its pole in the middle. Dashed: the margin; black: one point."],
  };
};

export const mount = on(drawing);
export default widget(mount);
