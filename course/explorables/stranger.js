// The price of a refusal on a line, the cheapest threshold for it, and the ten customers whom it answers or refuses.
import { along, bar, node, on, widget } from "./stage.js";

const LEFT = -130, WIDE = 260, BASE = 96, SIZE = 46, RATE = 0.2;
const x = (price) => LEFT + WIDE * price;
const tenths = (v) => v.toFixed(1);

export function compute({ choice, points: [[p]] }, { data }) {
  const price = Math.floor(100 * p + 0.5) / 100, { stranger, right, wrong } = data[choice];
  const refused = right.map((r, k) => 100 - r - wrong[k]);
  const costs = refused.map((r, k) => RATE * stranger[k] + (1 - RATE) * (wrong[k] + price * r)), at = costs.indexOf(Math.min(...costs));
  return { stranger: stranger[at], right: right[at], wrong: wrong[at], refused: refused[at], threshold: at / 100, cost: costs[at], price };
}

const drawing = ({ data }) => {
  const shown = data.customers.map(({ src, stranger }, i) => {
    const left = -150 + 62 * (i % 5), top = i < 5 ? -118 : -22;
    const image = node("image", { href: src, x: left, y: top, width: SIZE, height: SIZE });
    const frame = node("rect", { x: left, y: top, width: SIZE, height: SIZE, "stroke-width": 3, style: "fill: none" });
    const word = node("text", { x: left + SIZE / 2, y: top + SIZE + 15, "text-anchor": "middle", style: "font-size: 12px" }, "");
    return { image, frame, word, above: stranger ? [node("text", { x: left + SIZE / 2, y: top - 4, "text-anchor": "middle", style: "font-size: 12px" }, "stranger")] : [] };
  });
  const below = node("g", { "aria-hidden": "true" }, ...shown.flatMap(({ image, frame, word, above }) => [image, frame, word, ...above]),
    node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), ...[0, 0.5, 1].map((price) => node("text", { x: x(price), y: BASE + 24, "text-anchor": "middle" }, `${price}`)),
    node("text", { x: 0, y: BASE + 46, "text-anchor": "middle" }, "price of a refused known query"));
  return {
    below, box: "-162 -130 324 280",
    move: along({ from: [x(0), BASE], to: [x(1), BASE], low: 0, high: 1, step: 0.01 }),
    draw({ threshold }, { choice }) {
      data.customers.forEach(({ of }, i) => {
        const { cosine, right } = of[choice], answered = cosine > threshold, { image, frame, word } = shown[i];
        image.setAttribute("opacity", answered ? 1 : 0.2);
        frame.style.stroke = answered ? `var(${right ? "--pull" : "--push"})` : "var(--line)";
        word.textContent = answered ? (right ? "right" : "wrong") : "?";
      });
    },
    said: ({ threshold, stranger, right, wrong, refused, cost }) => `The cheapest threshold is ${threshold.toFixed(2)}. ${tenths(stranger)} % of strangers get an answer. Of known queries ${tenths(right)} % get the right one, ${tenths(wrong)} % a wrong one, and ${tenths(refused)} % none. 100 customers cost as much as ${tenths(cost)} wrong answers.`,
    about: ({ price }) => `a price of ${price.toFixed(2)}`,
    tables: () => [["At the cheapest threshold", ["threshold", "strangers answered", "known, right", "known, wrong", "known, refused", "cost of 100"], [[["threshold"], ["stranger"], ["right"], ["wrong"], ["refused"], ["cost"]]]]],
    key: [[bar("var(--pull)", "right answer"), bar("var(--push)", "wrong answer")], "Pale, with a question mark: refused. The handle is the price."],
  };
};

export const mount = on(drawing);
export default widget(mount);
