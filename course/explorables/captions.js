// Three pictures and three captions on a circle: caption b moves, and may be the nearest of two pictures.
import { bar, circle, node, on, short, widget } from "./stage.js";

const FIXED = [-50, 200], NAMES = ["a", "b", "c"], INKS = ["var(--a)", "var(--b)", "var(--c)"], RADIUS = 100, INSIDE = 68;
const radians = (degrees) => (degrees * Math.PI) / 180;
const softmax = (row) => { const top = Math.max(...row), e = row.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0); return e.map((v) => v / sum); };
const cost = (row, own) => { const top = Math.max(...row); return top + Math.log(row.reduce((a, v) => a + Math.exp(v - top), 0)) - row[own]; };

export function compute({ numbers: [place, sigma], points }) {
  const angles = [FIXED[0], place, FIXED[1]], s = points.map(([p]) => angles.map((a) => Math.cos(radians(p - a)))); // picture, caption
  const turn = (table) => NAMES.map((_, j) => table.map((row) => row[j])), right = (table) => table.filter((row, i) => row.indexOf(Math.max(...row)) === i).length;
  const scaled = s.map((row) => row.map((v) => v / sigma)), flipped = turn(scaled), half = (table) => table.reduce((sum, row, i) => sum + cost(row, i) / 3, 0);
  const rows = half(scaled), columns = half(flipped);
  return { value: (rows + columns) / 2, rows, columns, found: right(s), back: right(turn(s)), p: scaled.map(softmax), q: flipped.map(softmax), angles };
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
    said: ({ value, rows, columns, p, q }) => `Loss ${short(value, 3)}: rows ${short(rows, 3)}, columns ${short(columns, 3)}. ${p.map((row, i) => `Picture ${i + 1} finds ${NAMES[best(row)]}${best(row) === i ? "" : ", wrongly"}`).join("; ")}. ${q.map((row, j) => `Caption ${NAMES[j]} finds ${best(row) + 1}${best(row) === j ? "" : ", wrongly"}`).join("; ")}.`,
    about: ({ p }, i) => `finds caption ${NAMES[best(p[i])]} with probability ${short(Math.max(...p[i]), 2)}`,
    tables: () => [["Probability of a caption, for a picture", ["picture", ...NAMES], [0, 1, 2].map((i) => [`${i + 1}`, ...NAMES.map((_, j) => [`p.${i}.${j}`])])],
      ["Probability of a picture, for a caption", ["caption", "1", "2", "3"], NAMES.map((name, j) => [name, ...[0, 1, 2].map((i) => `q.${j}.${i}`)])],
      ["Captions (°)", NAMES, [NAMES.map((_, j) => [`angles.${j}`])]]],
    key: [INKS.map((ink, i) => bar(ink, `picture ${i + 1} and its caption ${NAMES[i]}`)), "Width of a line: a picture's probability for that caption."],
  };
};

export const mount = on(drawing);
export default widget(mount);
