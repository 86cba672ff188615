// One triplet on a circle: who is too far, who too near, and how each is turned.
import { bar, circle, follow, node, on, rad, spot, turned, turnedText, widget } from "./stage.js";

export function compute({ numbers: [margin], points: [[a], [p], [n]] }) {
  const D2 = [p, n].map((other) => 2 - 2 * Math.cos(rad(a - other))), value = Math.max(0, D2[0] - D2[1] + margin);
  const [pull, push] = [p, n].map((other) => (value ? 2 * Math.sin(rad(a - other)) : 0));
  return { value, D2, turns: [push - pull, pull, -push] };
}

const drawing = () => {
  const lines = node("g"), arrows = node("g"), names = ["anchor", "positive", "negative"];
  const below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: 100 }), lines, arrows);
  return {
    below, move: circle(),
    draw({ value, turns }, { points }) {
      const at = points.map(([degrees]) => spot(degrees));
      lines.replaceChildren(...[1, 2].map((i) => node("line", {
        class: `spring ${i === 1 ? "pull" : "push"}`, x1: at[0][0], y1: at[0][1], x2: at[i][0], y2: at[i][1],
        "stroke-width": value ? 4 : 1,
      })));
      arrows.replaceChildren(...turned(turns, points, 2));
    },
    said({ value, D2: [near, far] }) {
      if (!value) return "The negative is farther than the positive by the margin and more: the loss is 0, and nothing moves.";
      return far > near ? "The negative is farther than the positive, but not by the margin." : "The negative is nearer than the positive.";
    },
    about: turnedText,
    tables: (_, { points }) => [["How each is turned, + counterclockwise", ["image", "angle", "turned with"],
      names.map((name, i) => [name, `${points[i][0].toFixed(2)}°`, [`turns.${i}`]])]],
    key: [[bar("var(--pull)", "should be near"), bar("var(--push)", "should be far")],
      "A thick line acts. Arrow: how strongly a point is turned."],
    play: follow(),
  };
};

export const mount = on(drawing);
export default widget(mount);
