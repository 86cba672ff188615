// An anchor in the middle, its negatives at their true distances, and the edges that say which of them teach.
import { along, bar, node, on, short, spot, widget } from "./stage.js";

const UNIT = 82, SIZE = 15, AROUND = 137.5; // of distance 1; of an image; degrees from one negative to the next
const KINDS = [["hard", "var(--push)"], ["semi-hard", "var(--pull)"], ["easy", "var(--soft)"]];

const kind = (D2, near, margin) => (D2 <= near ? 0 : D2 < near + margin ? 1 : 2);

export function compute({ choice, numbers: [margin], points: [[D]] }, { data }) {
  const all = data.D2_an[choice], near = D * D, kinds = [0, 0, 0];
  for (const D2 of all) kinds[kind(D2, near, margin)] += 1;
  const nearest = all.indexOf(Math.min(...all)), beyond = all.filter((D2) => D2 > near);
  const taken = [nearest, all.indexOf(beyond.length ? Math.min(...beyond) : Math.max(...all))];
  return { kinds, teach: kinds[0] + kinds[1], D2: near, taken, loss: taken.map((i) => Math.max(0, near - all[i] + margin)) };
}

const drawing = ({ data }) => {
  const disc = (color) => node("circle", { fill: color, "fill-opacity": 0.16 });
  const ring = disc("var(--pull)"), inner = disc("var(--push)"), cover = node("circle", { fill: "var(--paper)" }), frames = node("g");
  const inks = KINDS.map(([name, color]) => node("filter", { id: `ink-${name}` },
    node("feFlood", { style: `flood-color: ${color}` }), node("feComposite", { in2: "SourceAlpha", operator: "in" })));
  const [anchor, ...others] = data.images.map((href) => node("image", { href, width: SIZE, height: SIZE }));
  for (const [name, value] of [["x", -11], ["y", -11], ["width", 22], ["height", 22], ["filter", "url(#ink)"]]) anchor.setAttribute(name, value);
  const below = node("g", { "aria-hidden": "true" }, node("defs", {}, ...inks), ring, cover, inner, ...others, frames, anchor);
  let places = [], shown = "";

  /** Each negative at its distance, turned from the next nearer one, so that they keep off each other. */
  function lay(choice) {
    const all = data.D2_an[choice], order = all.map((_, i) => i).sort((a, b) => all[a] - all[b]);
    order.forEach((i, k) => { places[i] = spot(30 + AROUND * k, UNIT * Math.sqrt(all[i])); });
    others.forEach((image, i) => { image.setAttribute("x", places[i][0] - SIZE / 2); image.setAttribute("y", places[i][1] - SIZE / 2); });
    shown = choice;
  }

  return {
    below, box: "-156 -156 312 312", move: along({ from: [0, 0], to: [0, -2 * UNIT], low: 0, high: 2, step: 0.01 }),
    draw({ taken }, { choice, numbers: [margin], points: [[D]] }) {
      if (choice !== shown) lay(choice);
      for (const edge of [cover, inner]) edge.setAttribute("r", UNIT * D);
      ring.setAttribute("r", UNIT * Math.sqrt(D * D + margin));
      others.forEach((image, i) => image.setAttribute("filter", `url(#ink-${KINDS[kind(data.D2_an[choice][i], D * D, margin)][0]})`));
      frames.replaceChildren(...taken.map((i, k) => node("circle", {
        cx: places[i][0], cy: places[i][1], r: SIZE / 2 + 3, fill: "none", stroke: "var(--ink)", "stroke-width": 1.6,
        ...(k === 0 && { "stroke-dasharray": "3 2.5" }),
      })));
    },
    said({ teach, kinds, loss }) {
      if (!teach) return "No negative lies within the blue edge: nothing teaches.";
      return `${kinds[0]} lie within the orange disc, ${kinds[1]} in the blue ring. Loss of the hard rule’s triplet ${short(loss[0], 3)}, of the semi-hard rule’s ${short(loss[1], 3)}.`;
    },
    tables: () => [
      ["Negatives", ["kind", "number"], KINDS.map(([name], i) => [name, [`kinds.${i}`]])],
      ["The triplet that a rule takes", ["rule", "loss"], ["hard", "semi-hard"].map((name, i) => [name, [`loss.${i}`]])],
    ],
    key: [KINDS.map(([name, color]) => bar(color, name)),
      "Dashed circle: the negative that the hard rule takes; full circle: the semi-hard rule’s. Only the distance from the middle has a meaning."],
  };
};

export const mount = on(drawing);
export default widget(mount);
