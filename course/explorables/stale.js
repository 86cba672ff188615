// How far entries of a memory, by their age, have moved from where the present network has their images.
import { along, bar, node, on, short, widget } from "./stage.js";

const BATCH = 32, EVERY = 8, LAST = 192, LEFT = -122, WIDE = 250, FLOOR = 96, HIGH = 190, TOP = 1.5, BASE = 150;

export function compute({ numbers: [places], points: [[step]] }, { data: { moved, same } }) {
  const now = Math.round(step / EVERY), then = Math.max(0, now - Math.round(places / BATCH / EVERY)), age = now - then;
  const young = moved[now].slice(then, now + 1).filter((far) => far < same[now]).length;
  return {
    step: EVERY * now, age: EVERY * age, entries: BATCH * EVERY * age, moved: moved[now][then], same: same[now],
    fresh: (100 * young) / (age + 1), curve: moved[now].map((_, k) => moved[now][Math.max(0, now - k)]),
  };
}

const x = (batches) => LEFT + (WIDE * batches) / LAST, y = (far) => FLOOR - (HIGH * far) / TOP;
const path = (far) => far.map((d, k) => `${k ? "L" : "M"}${x(EVERY * k).toFixed(1)} ${y(d).toFixed(1)}`).join("");

const drawing = ({ data }) => {
  const whole = node("path", { fill: "none", style: "stroke: var(--line); stroke-width: 2.5" });
  const held = node("path", { fill: "none", style: "stroke: var(--pull); stroke-width: 4; stroke-linecap: round" });
  const level = node("path", { "stroke-dasharray": "6 4", style: "stroke: var(--push); stroke-width: 1.8" });
  const oldest = node("circle", { r: 5.5, style: "fill: var(--pull)" });
  const tick = (at, low) => [node("path", { class: "axis", d: `M${x(at)} ${low}v5` }), node("text", { x: x(at), y: low + 19 }, at)];
  const row = (low, name) => [node("path", { class: "axis", d: `M${LEFT} ${low}h${WIDE}` }), ...[0, 64, 128, 192].flatMap((at) => tick(at, low)),
    node("text", { x: x(96), y: low + 34 }, name)];
  const below = node("g", { "aria-hidden": "true" }, ...row(FLOOR, "age of an entry (batches)"), ...row(BASE, "step"),
    ...[0, 0.5, 1].flatMap((far) => [node("path", { class: "axis", d: `M${LEFT - 5} ${y(far)}h5` }), node("text", { x: LEFT - 17, y: y(far) + 4 }, far)]),
    node("path", { class: "axis", d: `M${LEFT} ${FLOOR}v${-HIGH}` }), node("text", { x: LEFT + 4, y: y(TOP) - 8 }, "has moved by"),
    whole, level, held, oldest);
  return {
    below, box: "-156 -122 312 312",
    move: along({ from: [x(0), BASE], to: [x(LAST), BASE], low: 0, high: LAST, step: EVERY }),
    draw({ step, age, moved, same, curve }) {
      whole.setAttribute("d", path(curve.slice(0, step / EVERY + 1)));
      held.setAttribute("d", path(curve.slice(0, age / EVERY + 1)));
      level.setAttribute("d", `M${LEFT} ${y(same)}h${WIDE}`);
      oldest.setAttribute("cx", x(age));
      oldest.setAttribute("cy", y(moved));
    },
    said: ({ step, age, moved, same }) => (age
      ? `Step ${step}: the oldest entry is ${age} batches old and has moved by ${short(moved, 3)}, ${moved < same ? "less" : "more"} than two images of a character differ (${short(same, 3)}).`
      : "Step 0: the memory is empty."),
    about: ({ age, moved }) => `the oldest entry, ${age} batches old, has moved by ${short(moved, 3)}`,
    tables: () => [["At this step", ["", ""], [["step", ["step"]], ["entries", ["entries"]], ["the oldest has moved by", ["moved"]], ["two images of a character", ["same"]]]]],
    key: [[bar("var(--pull)", "entries that the memory holds"), bar("var(--line)", "older"), bar("var(--push)", "two images of a character")]],
  };
};

export const mount = on(drawing);
export default widget(mount);
