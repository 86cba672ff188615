// Three pictures and their captions on a circle: the captions turn together, and each picture looks for its own.
import { bar, circle, node, on, short, widget } from "./stage.js";

const CAPTIONS = [0, 120, 240], NAMES = ["a", "b", "c"], INKS = ["var(--a)", "var(--b)", "var(--c)"], RADIUS = 100, INSIDE = 68;
const radians = (degrees) => (degrees * Math.PI) / 180;
const softmax = (row) => { const top = Math.max(...row), e = row.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0); return e.map((v) => v / sum); };
const cost = (row, own) => { const top = Math.max(...row); return top + Math.log(row.reduce((a, v) => a + Math.exp(v - top), 0)) - row[own]; };

export function compute({ numbers: [turn, sigma], points }) {
  const angles = CAPTIONS.map((a) => a + turn), s = points.map(([p]) => angles.map((a) => Math.cos(radians(p - a)))); // picture, caption
  const scaled = s.map((row) => row.map((v) => v / sigma)), columns = NAMES.map((_, j) => scaled.map((row) => row[j]));
  const value = [0, 1, 2].reduce((sum, i) => sum + (cost(scaled[i], i) + cost(columns[i], i)) / 6, 0);
  return { value, found: s.filter((row, i) => row.indexOf(Math.max(...row)) === i).length, p: scaled.map(softmax), angles };
}

const drawing = () => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines);
  const spot = (degrees, r) => [r * Math.cos(radians(degrees)), -r * Math.sin(radians(degrees))];
  const best = (row) => row.indexOf(Math.max(...row));
  return {
    below, move: circle(),
    draw({ p, angles }, { points }) {
      lines.replaceChildren(
        node("circle", { class: "axis", cx: 0, cy: 0, r: RADIUS, style: "fill: none" }),
        ...p.flatMap((row, i) => row.map((v, j) => {
          const [x1, y1] = spot(points[i][0], RADIUS), [x2, y2] = spot(angles[j], INSIDE);
          return node("line", { x1, y1, x2, y2, "stroke-width": (9 * v).toFixed(2), style: `stroke: ${INKS[i]}`, opacity: 0.5 });
        })),
        ...angles.flatMap((a, j) => {
          const [x, y] = spot(a, INSIDE);
          return [node("rect", { x: x - 11, y: y - 11, width: 22, height: 22, rx: 3, style: `fill: var(--panel); stroke: ${INKS[j]}; stroke-width: 2` }),
            node("text", { x, y: y + 5, "text-anchor": "middle" }, NAMES[j])];
        }));
    },
    said: ({ value, p }) => `Loss ${short(value, 3)}. ${p.map((row, i) => `Picture ${i + 1} finds ${NAMES[best(row)]}${best(row) === i ? "" : ", wrongly"}`).join("; ")}.`,
    about: ({ p }, i) => `finds caption ${NAMES[best(p[i])]} with probability ${short(Math.max(...p[i]), 2)}`,
    tables: () => [["Probability of a caption, for a picture", ["picture", ...NAMES], [0, 1, 2].map((i) => [`${i + 1}`, ...NAMES.map((_, j) => [`p.${i}.${j}`])])],
      ["Captions (°)", NAMES, [NAMES.map((_, j) => [`angles.${j}`])]]],
    key: [INKS.map((ink, i) => bar(ink, `picture ${i + 1} and its caption ${NAMES[i]}`)), "Width of a line: a picture's probability for that caption."],
  };
};

export const mount = on(drawing);
export default widget(mount);
