// Where photographs are now, and where entries of a memory, old and new, have them, along a training.
import { along, bar, node, on, short, widget } from "./stage.js";

const BATCH = 32, EVERY = 8, LAST = 192, LEFT = -130, WIDE = 260, BASE = 132, UNIT = 108, INKS = ["var(--a)", "var(--b)", "var(--c)"];
const RANKS = Array.from({ length: 12 }, (_, k) => (5 * k) % 12), OLD = "var(--push)", YOUNG = "var(--paper)";

export function compute({ numbers: [places], points: [[step]] }, { data: { flat, moved, same } }) {
  const now = Math.round(step / EVERY), then = Math.max(0, now - Math.round(places / BATCH / EVERY)), age = now - then;
  const ages = RANKS.map((rank) => Math.floor((age * rank * 2 + 11) / 22)); // whose entry is how old, in frames
  const young = moved[now].slice(then, now + 1).filter((far) => far < same[now]).length;
  return {
    step: EVERY * now, age: EVERY * age, entries: BATCH * EVERY * age, moved: moved[now][then], same: same[now],
    fresh: (100 * young) / (age + 1), now: flat[now], then: ages.map((back, i) => flat[now - back][i]), ages: ages.map((back) => EVERY * back),
  };
}

const x = (step) => LEFT + (WIDE * step) / LAST;

const drawing = ({ data }) => {
  const trails = node("g"), kept = node("path", { style: "stroke: var(--pull)", "stroke-width": 5 });
  const tick = (step) => [node("path", { class: "axis", d: `M${x(step)} ${BASE}v6` }), node("text", { x: x(step), y: BASE + 24 }, step)];
  const below = node("g", { "aria-hidden": "true" }, trails, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), kept,
    ...[0, 64, 128, 192].flatMap(tick), node("text", { x: 0, y: BASE + 42 }, "step"));
  return {
    below, box: "-156 -122 312 304",
    move: along({ from: [x(0), BASE], to: [x(LAST), BASE], low: 0, high: LAST, step: EVERY }),
    draw({ step, age, now, then, ages }) {
      kept.setAttribute("d", `M${x(step - age)} ${BASE}H${x(step)}`);
      trails.replaceChildren(...now.flatMap(([a, b], i) => {
        const color = INKS[Math.floor(i / 4)], [c, d] = then[i], at = (u, v) => ({ cx: UNIT * u, cy: -UNIT * v });
        const [x1, y1, x2, y2] = [UNIT * c, -UNIT * d, UNIT * a, -UNIT * b], way = Math.hypot(x2 - x1, y2 - y1), turn = Math.atan2(y2 - y1, x2 - x1);
        const head = [0.5, -0.5].map((side) => [x2 - 6 * Math.cos(turn), y2 - 6 * Math.sin(turn)].map((v, k) => v - 6 * [Math.cos, Math.sin][k](turn + side)).join(" "));
        const aged = `color-mix(in srgb, ${OLD} ${Math.round((100 * ages[i]) / 120)}%, ${YOUNG})`;
        return [
          node("line", { x1, y1, x2, y2, style: "stroke: var(--soft)", "stroke-width": 1.4 }),
          ...(way > 14 ? [node("path", { d: `M${head[0]}L${x2 - 6 * Math.cos(turn)} ${y2 - 6 * Math.sin(turn)}L${head[1]}`, style: "stroke: var(--soft); fill: none", "stroke-width": 1.4 })] : []),
          node("circle", { ...at(a, b), r: 5.5, style: `fill: ${color}` }),
          node("circle", { ...at(c, d), r: 3.8, style: `fill: ${aged}; stroke: var(--ink)`, "stroke-width": 0.8 }),
        ];
      }));
    },
    said: ({ step, age, moved, same }) => (age
      ? `Step ${step}: the oldest entry is ${age} batches old and has moved by ${short(moved, 3)}, ${moved < same ? "less" : "more"} than two photographs of a product differ (${short(same, 3)}).`
      : "Step 0: the memory is empty."),
    about: ({ age, moved }) => `the oldest entry, ${age} batches old, has moved by ${short(moved, 3)}`,
    tables: () => [["At this step", ["", ""], [["step", ["step"]], ["entries", ["entries"]], ["the oldest has moved by", ["moved"]], ["two photographs of a product", ["same"]]]]],
    key: [INKS.map((color, k) => bar(color, data.names[k].replaceAll("-", " "))), "Large: where a photograph is now. Small: where its entry is, the redder the older. Thick line: batches that the memory holds."],
  };
};

export const mount = on(drawing);
export default widget(mount);
