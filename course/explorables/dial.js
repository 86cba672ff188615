// Who gets the push: the negatives of an anchor by rank, with the cosines of a trained network, at any scale.
import { bar, node, on, short, widget } from "./stage.js";

const WIDE = 9, TALL = 220, RANKS = 31;

export function compute({ choice, numbers }, { data }) {
  const alpha = numbers[0], rows = data.negatives[choice], shares = Array(RANKS).fill(0);
  let sum = 0, square = 0, count = 0;
  for (const row of rows) {
    const push = row.map((s) => Math.exp(alpha * (s - row[0])) * Math.sqrt(Math.max(0, 1 - s * s)));
    const total = push.reduce((a, b) => a + b, 0);
    push.forEach((p, k) => { shares[k] += (100 * p) / total / rows.length; });
    for (const s of row) { sum += s; count += 1; }
  }
  for (const row of rows) for (const s of row) square += (s - sum / count) ** 2;
  return { share: shares[0], shares, spread: alpha * Math.sqrt(square / (count - 1)) };
}

const drawing = () => {
  const bars = Array.from({ length: RANKS }, (_, k) => node("rect", { x: WIDE * k + 1, width: WIDE - 2, fill: "var(--push)" }));
  const even = TALL * (1 - 1 / RANKS), end = WIDE * RANKS;
  const below = node("g", { "aria-hidden": "true" }, ...bars,
    node("line", { x1: 0, x2: end, y1: even, y2: even, stroke: "var(--soft)", "stroke-dasharray": "3 3" }),
    node("line", { x1: 0, x2: end, y1: TALL, y2: TALL, stroke: "var(--ink)" }),
    node("text", { x: end / 2, y: TALL + 20 }, "31 negatives, the nearest first"));
  return {
    below, box: "-6 -4 291 250", move: {},
    draw({ shares }) {
      bars.forEach((each, k) => {
        const high = (TALL * shares[k]) / 100;
        each.setAttribute("y", (TALL - high).toFixed(2));
        each.setAttribute("height", high.toFixed(2));
      });
    },
    said: ({ share, spread }) => `The nearest of 31 negatives gets ${short(share, 3)} % of the push; α times the spread is ${short(spread, 3)}.`,
    tables: () => [["Share of the push (%)", ["negative", ""], [0, 1, 2, 3, 4].map((k) => [`${k + 1}`, [`shares.${k}`]])]],
    key: [[bar("var(--push)", "share of the push, mean over 32 anchors"), bar("var(--soft)", "all 31 alike")], "The cosines are those of the last batch of a training; they stay."],
  };
};

export const mount = on(drawing);
export default widget(mount);
