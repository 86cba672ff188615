// Photographs of 21 new products, ordered by a weighted sum of three words.
import { node, on, short, widget } from "./stage.js";

const SIDE = 43, COLUMNS = 7, LEFT = -150, TOP = -66;

export function compute({ choice, numbers: [a, b, c] }, settings) {
  const scores = settings.data[choice].map(([x, y, z]) => x * a + y * b + z * c), place = [];
  scores.map((_, i) => i).sort((i, j) => scores[j] - scores[i] || i - j).forEach((i, k) => { place[i] = k + 1; });
  return { scores, place, first: 1 + place.indexOf(1), best: Math.max(...scores) };
}

const drawing = (settings) => {
  const { urls, captions } = settings.data, tiles = node("g"), below = node("g", { "aria-hidden": "true" }, tiles);
  return {
    below, box: "-156 -72 312 148", move: {},
    draw({ place }) {
      tiles.replaceChildren(...urls.flatMap((href, i) => {
        const k = place[i] - 1, x = LEFT + SIDE * (k % COLUMNS), y = TOP + SIDE * 1.06 * Math.floor(k / COLUMNS);
        return [node("image", { href, x: x + 1, y, width: SIDE - 2, height: SIDE - 2 }),
          node("rect", { x: x + 1, y, width: 16, height: 14, style: "fill: var(--panel)" }),
          node("text", { x: x + 9, y: y + 11, "text-anchor": "middle", style: "font-size: 10px" }, `${k + 1}`)];
      }));
    },
    said: ({ place, first, best }) => `First: ${captions[first - 1]}; then ${[2, 3].map((k) => captions[place.indexOf(k)]).join("; ")}. The best score is ${short(best, 2)}.`,
    tables: ({ place }) => [["Each product", ["caption", "score", "place"], captions.map((name, i) => [`${i + 1} ${name}`, [`scores.${i}`], [`place.${i}`]])]],
    key: ["The number on a photograph is its place. All 21 are shown, one of each new product."],
  };
};

export const mount = on(drawing);
export default widget(mount);
