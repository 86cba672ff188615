// Recall@1 by how many photographs of each product the gallery has from the query's own visit.
import { along, bar, node, on, widget } from "./stage.js";

const LEFT = -120, WIDE = 240, BASE = 80, HIGH = 160, FROM = 50;
const INK = "var(--pull)";
const y = (share) => BASE - (HIGH * (share - FROM)) / (100 - FROM);
const tenths = (v) => v.toFixed(1);

export function compute({ choice, points: [[p]] }, { data }) {
  const own = Math.floor(p + 0.5), curve = data[choice];
  return { recall: curve[own], given: curve[own] - curve[0], own };
}

const drawing = ({ data }) => {
  const last = Math.max(...Object.values(data).map((curve) => curve.length)) - 1;
  const x = (k) => LEFT + (WIDE * k) / last;
  const path = node("path", { fill: "none", "stroke-width": 2.4, style: `stroke: ${INK}` });
  const dot = node("circle", { r: 7, style: `fill: ${INK}` });
  const rise = node("path", { "stroke-width": 3, style: "stroke: var(--push)" });
  const below = node("g", { "aria-hidden": "true" }, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), path, rise, dot,
    ...[50, 75, 100].map((share) => node("text", { x: LEFT - 18, y: y(share) + 5 }, `${share}`)),
    ...Array.from({ length: last + 1 }, (_, k) => node("text", { x: x(k), y: BASE + 24 }, `${k}`)),
    node("text", { x: 0, y: BASE + 46 }, "photographs of the own visit"), node("text", { x: LEFT + 26, y: y(100) - 14 }, "Recall@1 (%)"));
  return {
    below, box: "-162 -110 312 244",
    move: along({ from: [x(0), BASE], to: [x(last), BASE], low: 0, high: last, step: 1 }),
    draw({ recall, own }, { choice }) {
      path.setAttribute("d", data[choice].map((share, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(share).toFixed(1)}`).join(""));
      dot.setAttribute("cx", x(own));
      dot.setAttribute("cy", y(recall));
      rise.setAttribute("d", `M${x(own)} ${y(data[choice][0])}V${y(recall)}`);
    },
    said: ({ recall, given, own }) => `With ${own} photographs of each product from the query's own visit Recall@1 is ${tenths(recall)} %, ${tenths(given)} points of it by that visit.`,
    about: ({ own }) => `${own} of each product`,
    tables: () => [["In this gallery", ["photographs of the own visit", "Recall@1 (%)", "by the own visit"], [[["own"], ["recall"], ["given"]]]]],
    key: [[bar(INK, "Recall@1"), bar("var(--push)", "what the own visit gives")], "The handle is the number of photographs of the own visit, of each product."],
  };
};

export const mount = on(drawing);
export default widget(mount);
