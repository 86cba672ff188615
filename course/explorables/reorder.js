// Ten results of a search: cosines, and matches that add to them from a smallest number on.
import { bar, node, on, short, widget } from "./stage.js";

const LEFT = -150, WIDE = 300, TOP = -84, HIGH = 116, W = WIDE / 10;

export function compute({ choice, numbers: [weight, fewest], points }, settings) {
  const { cosines, counts, right } = settings.data[choice], t = Math.round(fewest);
  const scores = cosines.map((s, i) => s + weight * (counts[i] >= t ? counts[i] : 0)), place = [];
  scores.map((_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b).forEach((i, k) => { place[i] = k + 1; });
  return {
    scores, place, counts, rank: Math.min(...place.filter((_, i) => right[i])),
    counted: counts.filter((count) => count >= fewest).length,
  };
}

const drawing = (settings) => {
  const tiles = node("g"), below = node("g", { "aria-hidden": "true" }, tiles, node("path", { class: "axis", d: `M${LEFT} ${TOP + HIGH}h${WIDE}` }),
    node("text", { x: 0, y: TOP + HIGH + W + 32 }, "place, now"), node("text", { x: 0, y: TOP - 10 }, "score: cosine, and matches that count"));
  return {
    below, box: "-156 -110 312 220", move: {},
    draw({ scores, place, counts }, { choice }) {
      const { cosines, right, urls } = settings.data[choice], low = Math.min(...cosines) - 0.1, top = Math.max(...scores, low + 0.3);
      const y = (v) => TOP + HIGH * (1 - (v - low) / (top - low));
      tiles.replaceChildren(...scores.flatMap((score, i) => {
        const x = LEFT + W * (place[i] - 1) + 2, ink = right[i] ? "var(--pull)" : "var(--push)", base = y(cosines[i]);
        return [
          node("rect", { x, y: base, width: W - 4, height: TOP + HIGH - base, style: `fill: ${ink}; fill-opacity: .3; stroke: ${ink}` }),
          node("rect", { x, y: y(score), width: W - 4, height: Math.max(0, base - y(score)), style: `fill: ${ink}; stroke: ${ink}` }),
          node("text", { x: x + W / 2 - 2, y: TOP + HIGH - 8 }, i + 1),
          node("image", { href: urls[i], x: x - 1, y: TOP + HIGH + 4, width: W - 2, height: W - 2 }),
          node("text", { x: x + W / 2 - 2, y: TOP + HIGH + W + 16 }, place[i]),
        ];
      }));
    },
    said: ({ rank, counted }) => `A right result has place ${rank}; the matches of ${counted} results count.`,
    tables: ({ scores }) => [["Each result", ["place by cosine", "matches", "score", "place"], scores.map((_, i) => [`${i + 1}`, [`counts.${i}`], [`scores.${i}`], [`place.${i}`]])]],
    key: [[bar("var(--pull)", "right"), bar("var(--push)", "wrong")], "Pale: the cosine; full: what matches add. The number in a bar is its place by cosine alone."],
  };
};

export const mount = on(drawing);
export default widget(mount);
