"use strict";
// The layer in the browser: window, kept length and operator as in the library's core, and a bench
// to try them on. Text that comes from runs is only ever set as textContent.
(() => {
  // The mathematics.

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

  // m(f) for any real f, so that its corners can be drawn where they are.
  function windowAt(size, stride, smoothness, offset, tight) {
    const kept = keptLength(size, stride, smoothness, tight);
    if (smoothness === 0) return (f) => (2 * f <= kept ? 1 : 0);
    if (tight) {
      const end = size / (2 * clamp(stride, 1, size));
      return (f) => clamp((end - f) / Math.min(smoothness, end), 0, 1);
    }
    const cutoff = size / (2 * clamp(stride, lowestStride(size, smoothness, offset), size)) + offset;
    return (f) => clamp((smoothness + cutoff - f) / smoothness, 0, 1);
  }

  // A = D · diag(m) · E with gain 1: M rows of N weights.
  function operator(size, stride, smoothness, offset, tight) {
    const kept = keptLength(size, stride, smoothness, tight);
    const m = windowAt(size, stride, smoothness, offset, tight);
    const rows = [];
    for (let j = 0; j < kept; j++) {
      const row = new Float64Array(size);
      for (let f = 0; 2 * f <= kept; f++) {
        const pair = f === 0 || 2 * f === kept ? 1 : 2;
        for (let n = 0; n < size; n++) {
          // For 2f = M the sine is 0 on M points, so that only the cosine of the input counts.
          const there = (2 * Math.PI * f * j) / kept;
          const here = (2 * Math.PI * f * n) / size;
          const wave = 2 * f === kept ? Math.cos(there) * Math.cos(here) : Math.cos(there - here);
          row[n] += (pair * m(f) * wave) / size;
        }
      }
      rows.push(row);
    }
    return rows;
  }

  function apply(rows, columns, image) {
    const half = rows.map((row) => image[0].map((_, x) => row.reduce((sum, w, y) => sum + w * image[y][x], 0)));
    return half.map((line) => columns.map((row) => row.reduce((sum, w, x) => sum + w * line[x], 0)));
  }

  // In the mean over rows and columns, in parts of the range from −60 dB to the strongest.
  function spectrum(image) {
    const size = image.length;
    const power = [];
    for (let f = 0; 2 * f <= size; f++) {
      let sum = 0;
      for (let line = 0; line < size; line++) {
        let down = [0, 0], along = [0, 0];
        for (let n = 0; n < size; n++) {
          const c = Math.cos((2 * Math.PI * f * n) / size), s = Math.sin((2 * Math.PI * f * n) / size);
          down = [down[0] + image[n][line] * c, down[1] + image[n][line] * s];
          along = [along[0] + image[line][n] * c, along[1] + image[line][n] * s];
        }
        sum += down[0] ** 2 + down[1] ** 2 + along[0] ** 2 + along[1] ** 2;
      }
      power.push(sum);
    }
    const peak = Math.max(...power.slice(1), 1e-12);
    return power.map((p) => clamp(1 + (10 * Math.log10(Math.max(p / peak, 1e-12))) / 60, 0, 1));
  }

  // Examples.

  // A disc with sharp edges on rings that become finer: something to lose at every stride.
  function synthetic(size) {
    return Array.from({ length: size }, (_, y) =>
      Array.from({ length: size }, (_, x) => {
        const u = (x + 0.5) / size, v = (y + 0.5) / size;
        const rings = 128 + 90 * Math.cos(Math.PI * size * 0.42 * ((u - 0.08) ** 2 + (v - 0.08) ** 2));
        return Math.hypot(u - 0.66, v - 0.62) < 0.21 ? (Math.abs(u - v - 0.04) < 0.045 ? 30 : 235) : rings;
      }));
  }

  // An image on N × N points, by linear interpolation.
  function resized(pixels, size) {
    const at = (count, i) => {
      const place = clamp(((i + 0.5) * count) / size - 0.5, 0, count - 1);
      const low = Math.floor(place);
      return [low, Math.min(low + 1, count - 1), place - low];
    };
    return Array.from({ length: size }, (_, i) => {
      const [top, bottom, v] = at(pixels.length, i);
      return Array.from({ length: size }, (_, j) => {
        const [left, right, u] = at(pixels[0].length, j);
        return (1 - v) * ((1 - u) * pixels[top][left] + u * pixels[top][right]) +
          v * ((1 - u) * pixels[bottom][left] + u * pixels[bottom][right]);
      });
    });
  }

  // The bench.

  const get = (id) => document.getElementById(id);
  const data = JSON.parse(get("panel-data").textContent);
  const option = (select, value, text) => {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    select.append(made);
  };
  const first = data.layers[0];
  const state = {
    size: first ? first.size : 32, stride: first ? first.stride : 2,
    smoothness: first ? first.smoothness : 4, convention: first ? first.convention : "paper", example: 0,
  };
  const sizes = new Set([8, 16, 24, 28, 31, 32, 33, 48, 64, ...data.layers.map((layer) => layer.size)]);
  for (const size of [...sizes].filter((n) => n <= 128).sort((a, b) => a - b)) option(get("size"), size, size);
  if (state.size > 128) state.size = 64;
  data.examples.forEach((example, i) => option(get("example"), i, example.label));
  option(get("example"), data.examples.length, "rings and a disc (synthetic)");
  option(get("learned"), "", "choose one to load it");
  data.layers.forEach((layer, i) => {
    if (layer.size <= 128) option(get("learned"), i, `${layer.label}: S = ${layer.stride.toFixed(2)}, N = ${layer.size}`);
  });
  get("learned-row").hidden = get("learned").options.length === 1;

  const LEFT = 34, RIGHT = 406, TOP = 14, BOTTOM = 200;
  const toX = (f) => LEFT + ((RIGHT - LEFT) * f) / (state.size / 2);
  const toF = (x) => ((x - LEFT) / (RIGHT - LEFT)) * (state.size / 2);
  const toY = (m) => BOTTOM - (BOTTOM - TOP - 6) * m;
  const svg = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  const isTight = () => state.convention === "tight";

  function outline(offset) {
    const m = windowAt(state.size, state.stride, state.smoothness, offset, isTight());
    const points = [];
    for (let i = 0; i <= 4 * state.size; i++) points.push((i * state.size) / 2 / (4 * state.size));
    return "M" + points.map((f) => `${toX(f).toFixed(1)} ${toY(m(f)).toFixed(1)}`).join("L");
  }

  let image = null;
  function load() {
    const example = data.examples[state.example];
    image = example ? resized(example.pixels, state.size) : synthetic(state.size);
    const width = (RIGHT - LEFT) / (state.size / 2);
    get("bars").replaceChildren(...spectrum(image).map((height, f) => svg("rect", {
      x: Math.max(LEFT, toX(f) - 0.35 * width), width: 0.7 * width * (f === 0 ? 0.5 : 1),
      y: toY(height), height: BOTTOM - toY(height),
    })));
    const step = [1, 2, 4, 8, 16].find((s) => state.size / 2 / s <= 8) || 16;
    const ticks = [];
    for (let f = 0; f <= state.size / 2; f += step) {
      ticks.push(svg("text", { x: toX(f), y: 217, "text-anchor": "middle" }, f));
    }
    get("ticks").replaceChildren(...ticks);
    paint(get("before"), image, "The example");
  }

  function paint(canvas, pixels, name) {
    canvas.height = pixels.length;
    canvas.width = pixels[0].length;
    const context = canvas.getContext("2d");
    const made = context.createImageData(canvas.width, canvas.height);
    pixels.flat().forEach((value, i) => {
      made.data.fill(clamp(Math.round(value), 0, 255), 4 * i, 4 * i + 3);
      made.data[4 * i + 3] = 255;
    });
    context.putImageData(made, 0, 0);
    canvas.setAttribute("aria-label", `${name}, ${pixels.length} × ${pixels[0].length} pixels`);
  }

  function draw() {
    const { size, stride, smoothness } = state;
    const offset = state.convention === "paper" ? 1 : 0;
    const tight = isTight();
    const kept = keptLength(size, stride, smoothness, tight);
    get("window-first").setAttribute("d", outline(0));
    get("window-last").setAttribute("d", outline(offset));
    get("band").setAttribute("x", LEFT);
    get("band").setAttribute("width", toX(kept / 2) - LEFT);
    [...get("bars").children].forEach((bar, f) => bar.classList.toggle("dropped", 2 * f > kept));
    const edge = size / (2 * clamp(stride, 1, size));
    const place = (id, f, m) =>
      get(id).setAttribute("transform", `translate(${toX(Math.min(f, size / 2)).toFixed(1)} ${toY(m)})`);
    // The fall begins at the edge, or ends there if it is tight.
    const [begin, end] = tight ? [edge - Math.min(smoothness, edge), edge] : [edge, edge + smoothness];
    place("handle-stride", edge, tight ? 0 : 1);
    place("handle-smoothness", tight ? begin : end, tight ? 1 : 0);
    get("stride").value = stride;
    get("smoothness").value = smoothness;
    get("size").value = size;
    get("convention").value = state.convention;
    get("example").value = state.example;
    get("stride-value").textContent = Number(stride.toFixed(3));
    get("smoothness-value").textContent = smoothness;
    get("output-size").textContent = `${size} × ${size} → ${kept} × ${kept}`;
    get("plot").setAttribute("aria-label", `The window over frequency: 1 up to ${begin.toFixed(1)}, ` +
      `0 from ${end.toFixed(1)} on; ${kept} of ${size} samples are kept`);
    const rows = operator(size, stride, smoothness, 0, tight);
    paint(get("after"), apply(rows, offset ? operator(size, stride, smoothness, offset, tight) : rows, image),
      "The example after the layer");
  }

  function change(values) {
    const other = ["size", "example"].some((name) => name in values && values[name] !== state[name]);
    Object.assign(state, values);
    if (other || image === null) load();
    draw();
  }

  const listen = (id, event, values) => get(id).addEventListener(event, (e) => change(values(e.target.value)));
  listen("stride", "input", (value) => ({ stride: Number(value) }));
  listen("smoothness", "input", (value) => ({ smoothness: Number(value) }));
  listen("size", "change", (value) => ({ size: Number(value) }));
  listen("convention", "change", (value) => ({ convention: value }));
  listen("example", "change", (value) => ({ example: Number(value) }));
  listen("learned", "change", (value) => {
    if (value === "") return {};
    const { size, stride, smoothness, convention } = data.layers[value];
    return { size, stride, smoothness, convention };
  });

  function drag(id, values) {
    const handle = get(id);
    const move = (event) => {
      const box = get("plot").getBoundingClientRect();
      change(values(toF(((event.clientX - box.left) * 420) / box.width)));
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
  // To the steps of the sliders, through the shortest decimal, so that 2.4 is 2.4.
  drag("handle-stride", (f) => ({
    stride: Number((Math.round(20 * clamp(state.size / (2 * Math.max(f, 1e-6)), 1, 16)) / 20).toFixed(2)),
  }));
  drag("handle-smoothness", (f) => {
    const beyond = f - state.size / (2 * clamp(state.stride, 1, state.size));
    return { smoothness: Math.round(4 * clamp(isTight() ? -beyond : beyond, 0, 8)) / 4 };
  });

  document.querySelector(".bench").hidden = false;
  document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
  change({});
})();
