// Randomness as in step.py: number i of a stream is a function of seed, stream and i.

/** A number of 32 bits for each, by Wellons's lowbias32. */
export function mixed(x) {
  x ^= x >>> 16; x = Math.imul(x, 0x7feb352d);
  x ^= x >>> 15; x = Math.imul(x, 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Uniform numbers in [0, 1). */
export function draws(seed, stream, count) {
  const key = mixed((mixed((seed + 0x9e3779b9) | 0) + stream) | 0);
  return Float64Array.from({ length: count }, (_, i) => mixed((key + i) | 0) / 2 ** 32);
}

/** All parameters before the first step, of stream 0; biases are 0. */
export function begin(seed, dim, { shapes, classes, dim: all }) {
  const sizes = shapes.map((shape) => shape.reduce((a, b) => a * b)), weights = sizes.reduce((a, b) => a + b);
  const p = Float64Array.from(draws(seed, 0, weights + classes * all), (v, i) => (i < weights || (i - weights) % all < dim ? 2 * v - 1 : 0));
  let at = 0;
  shapes.forEach((shape, k) => {
    const scale = shape.length === 2 ? Math.sqrt(6 / shape[1]) : 0;
    for (const end = at + sizes[k]; at < end; at++) p[at] *= scale;
  });
  return p;
}

/** The places of the smallest numbers, in their order. */
const smallest = (numbers, count) => [...numbers.keys()].sort((a, b) => numbers[a] - numbers[b] || a - b).slice(0, count);

/** Labels, and images within their class, of step 1, 2, …: of stream number step. */
export function batch(seed, step, classes, perClass, sizes) {
  const numbers = draws(seed, step, sizes.classes + classes * sizes.images);
  const labels = [], places = [];
  smallest(numbers.subarray(0, sizes.classes), classes).forEach((label, i) => {
    const start = sizes.classes + i * sizes.images;
    for (const place of smallest(numbers.subarray(start, start + sizes.images), perClass)) { labels.push(label); places.push(place); }
  });
  return { labels, places };
}
