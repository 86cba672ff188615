// Photographs of noise by their distance to the mean: how many queries each is nearest to, and one that is moved.
import { along, node, on, short, widget } from "./stage.js";

const LEFT = -130, WIDE = 260, BASE = 40, HIGH = 120, MOST = 2.2;
const x = (r) => LEFT + (WIDE * r) / MOST, y = (count) => BASE - (HIGH * count) / 100;

export function compute({ choice, points: [[r]] }, { data }) {
  const { square, along: place, best, first } = data[choice], D = square.map((s, i) => s - 2 * r * place[i] + r ** 2);
  const others = Array(100).fill(0);
  D.forEach((far, i) => { if (far >= best[i]) others[first[i]] += 1; });
  return { taken: D.filter((far, i) => far < best[i]).length, mean: D.reduce((a, b) => a + b, 0) / 100, most: Math.max(...others), others };
}

const drawing = ({ data }) => {
  const dots = node("g"), bar = node("path", { "stroke-width": 4, style: "stroke: var(--push)" });
  const top = node("rect", { width: 12, height: 12, style: "fill: var(--push)" });
  const below = node("g", { "aria-hidden": "true" }, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), dots, bar, top,
    ...[0, 1, 2].map((r) => node("text", { x: x(r), y: BASE + 26 }, `${r}`)), ...[50, 100].map((count) => node("text", { x: LEFT - 16, y: y(count) + 5 }, `${count}`)),
    node("text", { x: 0, y: BASE + 46 }, "distance to the mean, over √d"), node("text", { x: LEFT + 50, y: y(100) - 14 }, "queries it is nearest to"));
  return {
    below, box: "-162 -108 322 200",
    move: along({ from: [x(0), BASE], to: [x(MOST), BASE], low: 0, high: MOST, step: 0.02 }),
    draw({ taken, others }, { choice, points: [[r]] }) {
      dots.replaceChildren(...others.map((count, j) => node("circle", { cx: x(data[choice].far[j]), cy: y(count), r: 4, style: "fill: var(--ink); fill-opacity: 0.4" })));
      bar.setAttribute("d", `M${x(r)} ${BASE}V${y(taken)}`);
      top.setAttribute("x", x(r) - 6);
      top.setAttribute("y", y(taken) - 6);
    },
    said: ({ taken, most }) => `The moved photograph is nearest to ${short(taken)} of 100 queries. No other is nearest to more than ${short(most)}.`,
    about: ({ taken }) => `takes ${short(taken)} queries`,
    tables: () => [["Queries", ["", "of 100"], [["nearest to the moved photograph", ["taken"]], ["most of any other", ["most"]]]], ["Distance", ["", "over d"], [["mean squared distance to the queries", ["mean"]]]]],
    key: ["Dots: 100 photographs of noise. The bar: one more, which you move. All else stays where it is."],
  };
};

export const mount = on(drawing);
export default widget(mount);
