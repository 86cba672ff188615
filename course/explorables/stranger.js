// A threshold on the line of cosines: which share of strangers and of known queries it answers.
import { along, bar, node, on, widget } from "./stage.js";

const LEFT = -130, WIDE = 260, BASE = 80, HIGH = 160, FROM = 0.3;
const INK = { stranger: "var(--soft)", right: "var(--pull)", wrong: "var(--push)" };
const x = (t) => LEFT + (WIDE * (t - FROM)) / (1 - FROM);
const y = (share) => BASE - (HIGH * share) / 100;
const tenths = (v) => v.toFixed(1);

export function compute({ choice, points: [[t]] }, { data }) {
  const at = Math.floor(100 * t + 0.5), { stranger, right, wrong } = data[choice];
  return { stranger: stranger[at], right: right[at], wrong: wrong[at], refused: 100 - right[at] - wrong[at], threshold: at / 100 };
}

const drawing = ({ data }) => {
  const curves = Object.entries(INK).map(([key, ink]) => [key, node("path", { fill: "none", "stroke-width": 2.4, "stroke-dasharray": key === "stranger" ? "5 4" : "none", style: `stroke: ${ink}` })]);
  const line = node("path", { "stroke-width": 1.6, style: "stroke: var(--ink)" });
  const labels = [0, 50, 100].map((share) => node("text", { x: LEFT - 14, y: y(share) + 5 }, `${share}`));
  const below = node("g", { "aria-hidden": "true" }, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), ...curves.map(([, path]) => path), line, ...labels,
    ...[0.4, 0.6, 0.8, 1].map((t) => node("text", { x: x(t), y: BASE + 24 }, `${t}`)), node("text", { x: 0, y: BASE + 46 }, "threshold (cosine)"),
    node("text", { x: LEFT + 24, y: y(100) - 14 }, "answered (%)"));
  return {
    below, box: "-162 -110 312 244",
    move: along({ from: [x(FROM), BASE], to: [x(1), BASE], low: FROM, high: 1, step: 0.01 }),
    draw({ threshold }, { choice }) {
      for (const [key, path] of curves)
        path.setAttribute("d", data[choice][key].slice(100 * FROM).map((share, k) => `${k ? "L" : "M"}${x(FROM + k / 100).toFixed(1)} ${y(share).toFixed(1)}`).join(""));
      line.setAttribute("d", `M${x(threshold)} ${BASE}V${y(100)}`);
    },
    said: ({ stranger, right, wrong, refused }) => `${tenths(stranger)} % of strangers get an answer. Of known queries ${tenths(right)} % get the right one, ${tenths(wrong)} % a wrong one, and ${tenths(refused)} % none.`,
    about: ({ threshold }) => `at the cosine ${threshold.toFixed(2)}`,
    tables: () => [["At this threshold", ["strangers answered", "known, right", "known, wrong", "known, refused"], [[["stranger"], ["right"], ["wrong"], ["refused"]]]]],
    key: [[bar(INK.stranger, "strangers answered"), bar(INK.right, "known, right"), bar(INK.wrong, "known, wrong")], "The handle is the threshold."],
  };
};

export const mount = on(drawing);
export default widget(mount);
