// Maps of one set of embeddings, from few and from many neighbors, and the plane of both scores.
import { bar, node, on, short, widget } from "./stage.js";

const SIDE = 150, GAP = 34, LEFT = SIDE + GAP, INK = ["var(--a)", "var(--b)", "var(--c)", "var(--soft)"];
const TOOLS = { UMAP: "var(--a)", "t-SNE": "var(--b)" }, LOW = 45, HIGH = 95, FAR = 65;

const place = ({ choice, numbers: [row] }, data) => data[choice][Math.floor(row - 0.5)];

export function compute(state, { data }) {
  const { neighbors, kept, right } = place(state, data);
  return { neighbors, kept, right };
}

const drawing = ({ data }) => {
  const frame = (x) => node("rect", { x, y: 0, width: SIDE, height: SIDE, style: "fill: var(--panel); stroke: var(--line)" });
  const at = (kept, right) => [LEFT + (SIDE * kept) / FAR, SIDE * (1 - (right - LOW) / (HIGH - LOW))];
  const dot = ([cx, cy], r, style) => node("circle", { cx, cy, r, style });
  const word = ([x, y], text, anchor = "middle") => node("text", { x, y, style: `text-anchor: ${anchor}` }, text);
  const line = ([x1, y1], [x2, y2], style) => node("line", { x1, y1, x2, y2, style });
  const mark = (x, y, c) => { // four colors by four marks
    const style = c % 8 < 4 ? `fill: ${INK[c % 4]}` : `fill: none; stroke: ${INK[c % 4]}`;
    return c < 8 ? dot([x, y], 1.6, style) : node("rect", { x: x - 1.5, y: y - 1.5, width: 3, height: 3, style });
  };
  const lines = Object.entries(TOOLS).map(([tool, ink]) => node("path", { d: `M${data[tool].map(({ kept, right }) => at(kept, right)).join("L")}`, style: `fill: none; stroke: ${ink}; stroke-width: 1.5` }));
  const { plane, classes } = data, now = node("g"), map = node("g");
  const below = node("g", { "aria-hidden": "true" }, frame(0), frame(LEFT), line(at(0, 50), at(FAR, 50), "stroke: var(--line); stroke-dasharray: 3 3"), ...lines,
    ...Object.entries(TOOLS).flatMap(([tool, ink]) => data[tool].map(({ kept, right }) => dot(at(kept, right), 2.2, `fill: ${ink}`))),
    dot(at(...plane), 3.5, "fill: var(--ink)"), word([at(...plane)[0], at(...plane)[1] - 7], "PCA"), word([LEFT + SIDE - 4, at(0, 50)[1] - 4], "chance", "end"),
    map, now, word([SIDE / 2, SIDE + 16], "the map"), word([LEFT + SIDE / 2, SIDE + 16], "neighbors kept →"), node("text", { transform: `translate(${LEFT - 9} ${SIDE / 2}) rotate(-90)` }, "right →"));
  return {
    below, box: `-4 -6 ${2 * SIDE + GAP + 8} ${SIDE + 28}`, move: {},
    draw({ kept, right }, state) {
      map.replaceChildren(...place(state, data).map.map(([x, y], i) => mark(SIDE / 2 + x * (SIDE / 2 - 6), SIDE / 2 - y * (SIDE / 2 - 6), classes[i])));
      now.replaceChildren(dot(at(kept, right), 5.5, `fill: none; stroke: ${TOOLS[state.choice]}; stroke-width: 2.5`));
    },
    said: ({ neighbors, kept, right }, { choice }) => `Told ${neighbors} neighbors, ${choice} keeps ${short(kept, 3)} % of the ten nearest and is right about the farther pair in ${short(right, 3)} %.`,
    tables: () => [["This map", ["", "value"], [["neighbors told", ["neighbors"]], ["neighbors kept (%)", ["kept"]], ["right about the farther pair (%)", ["right"]]]]],
    key: [Object.entries(TOOLS).map(([tool, ink]) => bar(ink, tool)), "Colors and marks of the map: classes."],
  };
};

export const mount = on(drawing);
export default widget(mount);
