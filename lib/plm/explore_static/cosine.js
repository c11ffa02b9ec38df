// Two arrows from the origin that the reader moves by mouse, touch, keyboard or number; beside them what their cosine is made of.
// state: { a: [x, y], b: [x, y], limit }  (limit: the axes go from -limit to limit)

const COLOUR = { a: "#0077BB", b: "#EE7733" };

const show = (x, digits) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "\u2212");
const short = (x) => String(Math.round(x * 100) / 100).replace("-", "\u2212");
const part = (x) => (x < 0 ? `(${short(x)})` : short(x));

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const size = 320, pad = 14;
  const state = () => model.get("state");
  const pixel = (x) => size / 2 + (x / state().limit) * (size / 2 - pad);
  const put = (changes) => {
    model.set("state", { ...state(), ...changes });
    model.save_changes();
  };
  const tidy = (v) => Math.round(Math.max(-state().limit, Math.min(state().limit, v)) * 10) / 10 || 0;
  const set = (name, x, y) => put({ [name]: [tidy(x), tidy(y)] });

  const layout = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:1rem; align-items:flex-start" });
  const left = make(layout, "div", { style: "flex:1 1 240px; max-width:340px; min-width:0" });
  const right = make(layout, "div", { style: "flex:1 1 230px; min-width:0" });
  const svg = make(left, "svg", { viewBox: `0 0 ${size} ${size}`, role: "group", "aria-label": "Plane with two arrows" });
  svg.style.touchAction = "pan-y"; // a finger beside the arrow tips still scrolls the page
  const limit = state().limit;
  for (let i = -limit; i <= limit; i++) {
    const axis = i === 0, look = { stroke: axis ? "var(--soft)" : "var(--line)", "stroke-width": axis ? 1.5 : 0.6 };
    make(svg, "line", { x1: pixel(i), x2: pixel(i), y1: pad, y2: size - pad, ...look });
    make(svg, "line", { y1: pixel(i), y2: pixel(i), x1: pad, x2: size - pad, ...look });
  }
  make(svg, "text", { x: size - pad + 1, y: size / 2 + 13, "text-anchor": "middle", style: "font-size:10px" }, String(limit));
  make(svg, "text", { x: size / 2 + 4, y: pad - 3, style: "font-size:10px" }, String(limit));
  const arc = make(svg, "path", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 });
  const arcLabel = make(svg, "text", { "text-anchor": "middle", "dominant-baseline": "middle" });

  const arrows = {}, inputs = {};
  for (const name of ["a", "b"]) {
    const line = make(svg, "line", { x1: pixel(0), y1: pixel(0), stroke: COLOUR[name], "stroke-width": 3.5 });
    const tip = make(svg, "g", { tabindex: 0, role: "button", style: "cursor:grab; touch-action:none" });
    make(tip, "circle", { r: 20, fill: "transparent" }); // a target that a finger can hit
    make(tip, "circle", { r: 8, fill: COLOUR[name] });
    const label = make(svg, "text", { style: "font-weight:bold; font-size:15px", "text-anchor": "middle" }, name);
    arrows[name] = { line, tip, label };
    tip.addEventListener("pointerdown", (e) => { tip.setPointerCapture(e.pointerId); e.preventDefault(); tip.focus(); });
    tip.addEventListener("pointermove", (e) => {
      if (!tip.hasPointerCapture(e.pointerId)) return;
      const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const scale = limit / (size / 2 - pad);
      set(name, (p.x - size / 2) * scale, (size / 2 - p.y) * scale);
    });
    tip.addEventListener("keydown", (e) => {
      const step = e.shiftKey ? 1 : 0.1, [x, y] = state()[name];
      const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[e.key];
      if (!move) return;
      e.preventDefault();
      set(name, x + move[0], y + move[1]);
    });
  }

  for (const name of ["a", "b"]) {
    const row = make(right, "div", { style: "display:flex; gap:0.5rem; align-items:center; margin-bottom:0.4rem" });
    make(row, "strong", { style: "width:1.2rem" }, name);
    inputs[name] = [1, 2].map((i) => {
      const label = make(row, "label", { style: "display:flex; align-items:center; margin:0; gap:0.3rem" });
      make(label, "span", { class: "soft" }, i === 1 ? "x" : "y");
      const box = make(label, "input", {
        type: "number", step: 0.1, min: -limit, max: limit, style: "width:4.6rem", "aria-label": `${name}, ${i === 1 ? "x" : "y"}`,
      });
      box.addEventListener("change", () => set(name, ...inputs[name].map((b) => Number(b.value) || 0)));
      return box;
    });
  }
  const table = make(right, "table", { style: "margin-bottom:0.5rem" });
  const body = make(table, "tbody"), rows = {};
  for (const [key, head] of [["dot", "dot product a·b"], ["lengths", "lengths |a|, |b|"], ["angle", "angle"], ["cosine", "cosine"]]) {
    const tr = make(body, "tr");
    make(tr, "th", { scope: "row", style: "font-weight:normal" }, head);
    rows[key] = make(tr, "td", { class: "value" });
  }
  rows.cosine.style.cssText = "font-weight:bold; font-size:1.15em";
  const said = make(right, "p", { class: "soft", "aria-live": "polite", style: "margin:0.3rem 0; min-height:2.8em" });
  const buttons = make(right, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem" });
  const first = structuredClone(state());
  for (const [title, action] of [
    ["same direction", () => put({ b: state().a.map((v) => v / 2) })],
    ["right angle", () => put({ b: [-state().a[1] || 0, state().a[0]] })],
    ["opposite", () => put({ b: state().a.map((v) => -v / 2 || 0) })],
    ["start again", () => put({ a: first.a, b: first.b })],
  ]) make(buttons, "button", { type: "button" }, title).addEventListener("click", action);

  const draw = () => {
    const { a, b } = state(), length = { a: Math.hypot(...a), b: Math.hypot(...b) };
    for (const [name, v] of Object.entries({ a, b })) {
      const { line, tip, label } = arrows[name], x = pixel(v[0]), y = size - pixel(v[1]);
      line.setAttribute("x2", x); line.setAttribute("y2", y);
      tip.setAttribute("transform", `translate(${x} ${y})`);
      tip.setAttribute("aria-label", `Tip of ${name} at (${short(v[0])}, ${short(v[1])}). Arrow keys move it.`);
      const out = length[name] ? 19 / length[name] : 0;
      label.setAttribute("x", Math.min(size - 8, Math.max(8, x + v[0] * out)));
      label.setAttribute("y", Math.min(size - 6, Math.max(14, y - v[1] * out + 5)));
      inputs[name].forEach((box, i) => { if (document.activeElement !== box || Number(box.value) !== v[i]) box.value = v[i]; });
    }
    const dot = a[0] * b[0] + a[1] * b[1], defined = length.a > 0 && length.b > 0;
    const cosine = defined ? Math.max(-1, Math.min(1, dot / (length.a * length.b))) : NaN;
    rows.dot.textContent = `${short(a[0])}·${part(b[0])} + ${part(a[1])}·${part(b[1])} = ${short(dot)}`;
    rows.lengths.textContent = `${show(length.a, 2)}, ${show(length.b, 2)}`;
    rows.angle.textContent = defined ? `${show((Math.acos(cosine) * 180) / Math.PI, 1)}°` : "none";
    rows.cosine.textContent = defined ? show(cosine, 3) : "none";
    said.textContent = !defined ? "The zero vector has no direction, so it has no cosine."
      : cosine > 0.995 ? "Same direction: the lengths do not matter."
      : cosine < -0.995 ? "Opposite directions."
      : Math.abs(cosine) < 0.02 ? "At a right angle: nothing in common."
      : cosine > 0 ? "Less than a right angle apart: alike to some degree." : "More than a right angle apart: unlike.";
    const turn = Math.atan2(a[0] * b[1] - a[1] * b[0], dot), start = Math.atan2(a[1], a[0]), r = 30;
    const at = (t, radius) => [size / 2 + radius * Math.cos(t), size / 2 - radius * Math.sin(t)];
    const [from, to, middle] = [at(start, r), at(start + turn, r), at(start + turn / 2, r + 20)];
    arc.setAttribute("d", defined ? `M ${from.join(" ")} A ${r} ${r} 0 0 ${turn > 0 ? 0 : 1} ${to.join(" ")}` : "");
    arcLabel.textContent = defined && Math.abs(turn) > 0.75 ? `${Math.round((Math.abs(turn) * 180) / Math.PI)}°` : "";
    arcLabel.setAttribute("x", middle[0]); arcLabel.setAttribute("y", middle[1]);
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
