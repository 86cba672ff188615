// The memory as a ring of batches: a new batch takes the place of the oldest, and all entries age while the network moves on.
import { along, bar, node, on, short, spot, widget } from "./stage.js";

const BATCH = 32, INNER = 44, OUTER = 104, UP = -14, BASE = 128, LEFT = -125, WIDE = 250;

export function compute({ numbers: [batches], points: [[at]] }, { data: { aged, same } }) {
  const step = Math.min(Math.max(Math.round(at), 0), aged.length - 1), size = Math.round(batches), held = Math.min(step + 1, size);
  // Slot k holds the last batch b <= step with b = k modulo the size; its age is step - b, of today's batch 0.
  const ages = Array.from({ length: size }, (_, k) => (((step - k) % size) + size) % size).map((age) => (age < held ? age : -1));
  const moved = ages.map((age) => (age < 0 ? 0 : aged[step][age]));
  return {
    step, entries: BATCH * held, oldest: aged[step][held - 1], same: same[step], ages, moved,
    wrong: BATCH * moved.filter((far) => far > same[step]).length,
  };
}

const drawing = ({ data }) => {
  const last = data.aged.length - 1, ring = node("g"), middle = node("text", { y: UP + 5, style: "font-weight: 600" });
  const tick = (at) => { const x = LEFT + (WIDE * at) / last; return [node("path", { class: "axis", d: `M${x} ${BASE}v5` }), node("text", { x, y: BASE + 19 }, at)]; };
  const below = node("g", { "aria-hidden": "true" }, ring, middle, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }),
    ...[0, 50, 100, 150].flatMap(tick), node("text", { x: 0, y: BASE + 36 }, "step"));
  return {
    below, box: "-156 -128 312 304",
    move: along({ from: [LEFT, BASE], to: [LEFT + WIDE, BASE], low: 0, high: last, step: 1 }),
    draw({ step, same, ages, moved }) {
      const each = 360 / ages.length;
      ring.replaceChildren(...ages.flatMap((age, k) => {
        const [from, to] = [90 - k * each - 1, 90 - (k + 1) * each + 1];
        const [[a, b], [c, d]] = [spot(from, OUTER), spot(to, OUTER)], [[e, f], [g, h]] = [spot(to, INNER), spot(from, INNER)];
        const color = age < 0 ? "var(--line)" : moved[k] > same ? "var(--push)" : "var(--pull)";
        const fade = age < 0 ? 0.3 : 0.7 - (0.5 * age) / Math.max(1, ages.length - 1), wide = each > 180 ? 1 : 0;
        const [x, y] = spot((from + to) / 2, (INNER + OUTER) / 2);
        const sector = node("path", {
          d: `M${a} ${b + UP}A${OUTER} ${OUTER} 0 ${wide} 1 ${c} ${d + UP}L${e} ${f + UP}A${INNER} ${INNER} 0 ${wide} 0 ${g} ${h + UP}z`,
          style: `fill: ${color}; fill-opacity: ${fade}; stroke: var(--ink); stroke-width: ${age === 0 ? 3 : 0}`,
        });
        return age < 0 ? [sector] : [sector, node("text", { x, y: y + UP + 4, style: "font-size: 12px" }, moved[k].toFixed(2))];
      }));
      middle.textContent = `step ${step}`;
    },
    said: ({ step, entries, oldest, same }) =>
      `Step ${step}: the oldest of ${entries} entries have moved by ${short(oldest, 3)}, ${oldest > same ? "more" : "less"} than two images of a character differ (${short(same, 3)}).`,
    about: ({ entries, oldest }) => `${entries} entries, the oldest have moved by ${short(oldest, 3)}`,
    tables: ({ ages }) => [["Places of the memory", ["", "age in batches", "has moved by"], ages.map((_, k) => [`${k + 1}`, [`ages.${k}`], [`moved.${k}`]])]],
    key: [[bar("var(--pull)", "moved less than two images of a character differ"), bar("var(--push)", "moved more")],
      "A sector is a batch of 32 entries; today's has a frame, and the paler, the older. Its number: how far its images have moved since."],
  };
};

export const mount = on(drawing);
export default widget(mount);
