"use strict";
// The layer in the browser: window, kept length and resampling as in the library's core, and a bench
// to try them on. Text that comes from runs is only ever set as textContent.
(() => {
  // The mathematics. Frequencies are in periods per axis, unless they are said to be in units.

  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

  function keptLength(size, stride, smoothness, tight) {
    const s = clamp(stride, 1, size);
    const band = tight ? (size / s) * (1 + 2 ** -23) : size / s + 2 * smoothness;
    return Math.max(1, Math.floor(Math.min(size, band)));
  }

  function lowestStride(size, smoothness, offset) {
    const half = Math.floor(size / 2) - smoothness / 2 - offset;
    return half <= 0 || size / (2 * half) > size ? 1 : size / (2 * half);
  }

  // Where the fall of a window begins and where it ends.
  function fall(size, stride, smoothness, offset, tight) {
    if (smoothness === 0) return Array(2).fill(keptLength(size, stride, 0, tight) / 2);
    if (tight) {
      const end = size / (2 * clamp(stride, 1, size));
      return [end - Math.min(smoothness, end), end];
    }
    const begin = size / (2 * clamp(stride, lowestStride(size, smoothness, offset), size)) + offset;
    return [begin, begin + smoothness];
  }

  // m(f) for any real f.
  const weight = ([begin, end]) => (f) =>
    (f <= begin ? 1 : f >= end ? 0 : (end - f) / (end - begin));

  const tables = new Map();
  function waves(size) {
    if (!tables.has(size)) {
      const turn = (n) => (2 * Math.PI * n) / size;
      tables.set(size, [Float64Array.from({ length: size }, (_, n) => Math.cos(turn(n))),
        Float64Array.from({ length: size }, (_, n) => Math.sin(turn(n)))]);
    }
    return tables.get(size);
  }

  // The cosines and the sines in a line, for the frequencies 0 … highest.
  function analysis(line, highest) {
    const size = line.length, [cos, sin] = waves(size);
    const even = new Float64Array(highest + 1), odd = new Float64Array(highest + 1);
    for (let f = 0; f <= highest; f++) {
      let c = 0, s = 0;
      for (let n = 0, at = 0; n < size; n++) {
        c += line[n] * cos[at];
        s += line[n] * sin[at];
        if ((at += f) >= size) at -= size;
      }
      even[f] = c / size;
      odd[f] = s / size;
    }
    return [even, odd];
  }

  // The lowest frequencies of a line, weighted, on so many samples; the mean stays.
  function resample(line, kept, m) {
    const highest = Math.floor(kept / 2), [cos, sin] = waves(kept), made = new Float64Array(kept);
    const [even, odd] = analysis(line, highest);
    for (let f = 0; f <= highest; f++) {
      // For 2f = M the sine is 0 on M points, so that only the cosine of the input counts.
      const w = m(f) * (f === 0 || 2 * f === kept ? 1 : 2);
      if (w === 0) continue;
      for (let j = 0, at = 0; j < kept; j++) {
        made[j] += w * (even[f] * cos[at] + odd[f] * sin[at]);
        if ((at += f) >= kept) at -= kept;
      }
    }
    return made;
  }

  const transposed = (rows) => Array.from(rows[0], (_, x) => rows.map((row) => row[x]));

  // In the mean over lines, in parts of the range from −60 dB to the strongest.
  function spectrum(lines) {
    const power = new Float64Array(Math.floor(lines[0].length / 2) + 1);
    for (const line of lines) {
      const [even, odd] = analysis(line, power.length - 1);
      power.forEach((_, f) => { power[f] += even[f] ** 2 + odd[f] ** 2; });
    }
    const peak = power.slice(1).reduce((most, p) => Math.max(most, p), 1e-12);
    return power.map((p) => clamp(1 + (10 * Math.log10(Math.max(p / peak, 1e-12))) / 60, 0, 1));
  }

  // The data, and what is shown of them.

  const get = (id) => document.getElementById(id);
  const data = JSON.parse(get("panel-data").textContent);
  const { axes, layers } = data;
  const isSignal = axes.length === 1;
  const along = (rows, axis, make) =>
    (isSignal || axis === 1 ? rows.map(make) : transposed(transposed(rows).map(make)));
  const lines = (rows, axis) => (isSignal || axis === 1 ? rows : transposed(rows));

  // Something to lose at every stride: a disc with sharp edges on rings that become finer, or a wave
  // that becomes faster, between two steps.
  function synthetic() {
    const [height, width] = isSignal ? [1, Math.min(layers[0].sizes[0], 1000)] :
      layers[0].sizes.map((size) => Math.round(size / Math.max(1, Math.max(...layers[0].sizes) / 128)));
    const wave = (u) => (u < 0.1 || u > 0.9 ? 0.6 : 0) + 0.4 * Math.cos(Math.PI * 0.4 * width * u * u);
    return Array.from({ length: height }, (_, y) => Array.from({ length: width }, (_, x) => {
      const u = (x + 0.5) / width, v = (y + 0.5) / height;
      if (isSignal) return wave(u);
      const rings = 128 + 90 * Math.cos(Math.PI * 0.42 * (width * (u - 0.08) ** 2 + height * (v - 0.08) ** 2));
      return Math.hypot(u - 0.66, v - 0.62) < 0.21 ? (Math.abs(u - v - 0.04) < 0.045 ? 30 : 235) : rings;
    }));
  }

  const rule = () => ({ smoothness: state.smoothness, convention: state.convention });
  const learned = { smoothness: data.smoothness, convention: data.convention };
  const isTight = (by) => by.convention === "tight";
  const offset = (axis, by) => (by.convention === "paper" && axis === axes.length - 1 ? 1 : 0);
  const fallAlong = (axis, size, stride, by) =>
    fall(size, stride, by.smoothness, offset(axis, by), isTight(by));
  const keptAlong = (size, stride, by) => keptLength(size, stride, by.smoothness, isTight(by));

  // What is left of an example that has these shares of the axes; it may have fewer pixels than the data.
  function downsampled(rows, shares, sizes, strides, by) {
    sizes.forEach((size, axis) => {
      const m = weight(fallAlong(axis, size, strides[axis], by));
      const kept = Math.max(1, Math.round(keptAlong(size, strides[axis], by) * shares[axis]));
      rows = along(rows, axis, (line) =>
        resample(line, Math.min(kept, line.length), (f) => m(f / shares[axis])));
    });
    return rows;
  }

  function fitted(rows, shares, sizes) {
    sizes.forEach((size, axis) => {
      const kept = Math.max(1, Math.round(size * shares[axis]));
      rows = along(rows, axis, (line) => (kept < line.length ? resample(line, kept, () => 1) : line));
    });
    return rows;
  }

  const cutoff = (axis, size, stride) => (size / (2 * clamp(stride, 1, size))) * axes[axis].period;
  const lowestBefore = (axis) => Math.min(Infinity, ...layers.slice(0, state.layer)
    .map(({ sizes, strides }) => cutoff(axis, sizes[axis], strides[axis])));

  // The bench.

  const option = (select, value, text) => {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    select.append(made);
  };
  layers.forEach((layer, i) => option(get("layer"), i, data.learned ?
    `${i + 1}: ${layer.label}, S = ${layer.strides.map((s) => s.toFixed(2)).join(" × ")}` : layer.label));
  data.examples.forEach((example, i) => option(get("example"), i, example.label));
  option(get("example"), data.examples.length, isSignal ? "a wave and steps (synthetic)" : "rings and a disc (synthetic)");
  const state = { layer: 0, strides: [...layers[0].strides], ...learned, example: 0 };

  const LEFT = 34, RIGHT = 406, TOP = 20, BOTTOM = 200;
  const sizeOf = (axis) => layers[state.layer].sizes[axis];
  const toX = (axis, f) => LEFT + ((RIGHT - LEFT) * clamp(f, 0, sizeOf(axis) / 2)) / (sizeOf(axis) / 2);
  const toF = (axis, x) => ((x - LEFT) / (RIGHT - LEFT)) * (sizeOf(axis) / 2);
  const toY = (m) => BOTTOM - (BOTTOM - TOP) * m;
  const text = (x, value) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "text");
    for (const [key, to] of Object.entries({ x: x.toFixed(1), y: 217, "text-anchor": "middle" })) made.setAttribute(key, to);
    made.textContent = value;
    return made;
  };
  const short = (value) => Number(value.toPrecision(3));

  // Round numbers from 0 to the end of a scale.
  function ticks(id, end) {
    const power = 10 ** Math.floor(Math.log10(end / 5));
    const step = power * [1, 2, 5, 10].find((s) => end / (s * power) <= 8);
    const count = Math.floor(end / step + 1e-9);
    get(id).replaceChildren(...Array.from({ length: count + 1 }, (_, i) =>
      text(LEFT + ((RIGHT - LEFT) * i * step) / end, short(i * step))));
  }

  const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

  // The spectrum in steps; of frequencies on the same spot of the screen, the strongest.
  function area(axis, heights, share) {
    const half = 0.5 / share, highest = new Map();
    heights.forEach((height, f) => {
      const spot = Math.round(2 * toX(axis, f / share));
      const known = highest.get(spot) || { from: f / share - half, height: 0 };
      highest.set(spot, { ...known, to: f / share + half, height: Math.max(known.height, height) });
    });
    const steps = [...highest.values()].flatMap(({ from, to, height }) =>
      [[toX(axis, from), toY(height)], [toX(axis, to), toY(height)]]);
    return path([[LEFT, BOTTOM], ...steps, [steps.at(-1)[0], BOTTOM]]) + "Z";
  }

  let before = null, shares = null;
  function load() {
    const example = data.examples[state.example], by = learned;
    let rows = example ? example.rows : synthetic();
    shares = example ? example.shares : axes.map(() => 1);
    for (const { sizes, strides } of layers.slice(0, state.layer)) {
      rows = downsampled(fitted(rows, shares, sizes), shares, sizes, strides, by);
    }
    before = fitted(rows, shares, layers[state.layer].sizes);
    axes.forEach(({ period }, i) => {
      get(`spectrum-${i}`).setAttribute("d", area(i, spectrum(lines(before, i)), shares[i]));
      ticks(`ticks-${i}`, (sizeOf(i) / 2) * period);
    });
    show("before", before, "What comes into the layer");
  }

  function show(id, rows, name) {
    if (isSignal) trace(id, rows[0]);
    else paint(get(id), rows, name);
  }

  // Time to the right and what is next to it upwards; images as they are.
  function paint(canvas, rows, name) {
    const shown = data.time_first ? transposed(rows).reverse() : rows;
    canvas.height = shown.length;
    canvas.width = shown[0].length;
    const context = canvas.getContext("2d");
    const made = context.createImageData(canvas.width, canvas.height);
    let i = 0;
    for (const row of shown) {
      for (const value of row) {
        made.data.fill(clamp(Math.round(value), 0, 255), i, i + 3);
        made.data[i + 3] = 255;
        i += 4;
      }
    }
    context.putImageData(made, 0, 0);
    canvas.setAttribute("aria-label", `${name}: ${axes.map(({ name: axis }, n) =>
      `${axis} ${n === 0 ? rows.length : rows[0].length}`).join(", ")}`);
  }

  let largest = 1;
  function trace(id, line) {
    if (id === "before") {
      largest = line.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
      ticks("signal-ticks", axes[0].length * shares[0]);
    }
    const middle = (TOP + BOTTOM) / 2, half = (BOTTOM - TOP) / 2 / (1.1 * largest);
    get(id).setAttribute("d", path(Array.from(line, (value, n) =>
      [LEFT + ((RIGHT - LEFT) * n) / line.length, clamp(middle - half * value, TOP, BOTTOM)])));
  }

  function drawAxis(axis) {
    const { name, unit, period } = axes[axis], size = sizeOf(axis), stride = state.strides[axis];
    const tight = isTight(state), kept = keptAlong(size, stride, state);
    const [begin, end] = fallAlong(axis, size, stride, rule()), m = weight([begin, end]);
    const corners = [[0, 1], [begin, 1], ...(end > size / 2 ? [[size / 2, m(size / 2)]] : [[end, 0], [size / 2, 0]])];
    get(`window-${axis}`).setAttribute("d", path(corners.map(([f, w]) => [toX(axis, f), toY(w)])));
    get(`band-${axis}`).setAttribute("x", LEFT);
    get(`band-${axis}`).setAttribute("width", toX(axis, kept / 2) - LEFT);
    get(`dropped-${axis}`).setAttribute("x", toX(axis, kept / 2));
    get(`dropped-${axis}`).setAttribute("width", RIGHT - toX(axis, kept / 2));
    const place = (id, f, w) =>
      get(`${id}-${axis}`).setAttribute("transform", `translate(${toX(axis, f).toFixed(1)} ${toY(w).toFixed(1)})`);
    // A stride moves where the fall begins, or where it ends if it is tight.
    place("handle-stride", tight ? end : begin, tight ? 0 : 1);
    place("handle-smoothness", tight ? begin : end, tight ? 1 : m(Math.min(end, size / 2)));
    const own = cutoff(axis, size, stride), lowest = Math.min(own, lowestBefore(axis));
    for (const x of ["x1", "x2"]) get(`lowest-${axis}`).setAttribute(x, toX(axis, lowest / period));
    get(`cutoff-${axis}`).textContent = `cut-off ${short(own)}, lowest so far ${short(lowest)} ${unit}`;
    get(`stride-${axis}`).max = Math.max(16, Math.ceil(stride));
    get(`stride-${axis}`).value = stride;
    get(`stride-value-${axis}`).textContent = Number(stride.toFixed(3));
    get(`plot-${axis}`).setAttribute("aria-label", `The window along ${name}: 1 up to ${short(begin * period)}, ` +
      `0 from ${short(end * period)} ${unit} on; ${kept} of ${size} samples are kept`);
    return kept;
  }

  function draw() {
    const kept = axes.map((_, axis) => drawAxis(axis));
    for (const name of ["layer", "smoothness", "convention", "example"]) get(name).value = state[name];
    get("smoothness-value").textContent = state.smoothness;
    get("output-size").textContent = axes.map(({ name }, axis) => `${name} ${sizeOf(axis)} → ${kept[axis]}`).join(", ");
    show("after", downsampled(before, shares, layers[state.layer].sizes, state.strides, rule()), "What is left behind the layer");
  }

  function change(values) {
    const other = ["layer", "example"].some((name) => name in values && values[name] !== state[name]);
    Object.assign(state, values);
    if (other || before === null) load();
    draw();
  }

  const withStride = (axis, stride) => ({ strides: state.strides.map((s, i) => (i === axis ? stride : s)) });
  const listen = (id, event, values) => get(id).addEventListener(event, (e) => change(values(e.target.value)));
  listen("smoothness", "input", (value) => ({ smoothness: Number(value) }));
  listen("convention", "change", (value) => ({ convention: value }));
  listen("example", "change", (value) => ({ example: Number(value) }));
  listen("layer", "change", (value) => ({ layer: Number(value), strides: [...layers[value].strides], ...learned }));

  function drag(id, axis, values) {
    const handle = get(`${id}-${axis}`);
    const move = (event) => {
      const box = get(`plot-${axis}`).getBoundingClientRect();
      change(values(toF(axis, ((event.clientX - box.left) * 420) / box.width)));
    };
    handle.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      handle.setPointerCapture(event.pointerId);
      handle.addEventListener("pointermove", move);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      handle.addEventListener(end, () => handle.removeEventListener("pointermove", move));
    }
  }
  axes.forEach((_, axis) => {
    listen(`stride-${axis}`, "input", (value) => withStride(axis, Number(value)));
    // To the steps of the sliders, through the shortest decimal, so that 2.4 is 2.4.
    drag("handle-stride", axis, (f) => {
      const stride = sizeOf(axis) / (2 * Math.max(f - offset(axis, state), 1e-6));
      return withStride(axis, Number((Math.round(20 * clamp(stride, 1, 16)) / 20).toFixed(2)));
    });
    drag("handle-smoothness", axis, (f) => {
      const size = sizeOf(axis);
      const edge = size / (2 * clamp(state.strides[axis], 1, size)) + offset(axis, state);
      return { smoothness: Math.round(4 * clamp(isTight(state) ? edge - f : f - edge, 0, 8)) / 4 };
    });
  });

  const bench = document.querySelector(".bench");
  bench.addEventListener("submit", (event) => event.preventDefault());
  bench.hidden = false;
  change({});
})();
