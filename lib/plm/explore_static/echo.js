// How much of a word is left after some steps: gradient against distance, with a slider for the spectral radius of W_hh and a
// second one for the distance that is read off.
// state: { radii: [...], curves: { name: [[norm at distance 0, 1, ...], one row per radius] }, radius, kind, distance }

const raised = (n) => [...String(n)].map((d) => (d === "-" ? "\u207B" : "\u2070\u00B9\u00B2\u00B3\u2074\u2075\u2076\u2077\u2078\u2079"[d])).join("");
const shown = (x) => {
  if (x >= 0.01 && x < 1000) return x.toPrecision(2);
  const exponent = Math.floor(Math.log10(x));
  return `${(x / 10 ** exponent).toFixed(1)} \u00B7 10${raised(exponent)}`;
};

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };
  const names = Object.keys(state().curves), steps = state().curves[names[0]][0].length - 1;
  const width = 460, height = 250, left = 46, bottom = 30, top = 10, right = 10, low = -12, high = 6;
  const px = (t) => left + (t / steps) * (width - left - right);
  const py = (value) => {
    const power = Math.max(low, Math.min(high, Math.log10(value || 1e-300)));
    return top + ((high - power) / (high - low)) * (height - top - bottom);
  };

  const radiusLabel = make(el, "label", {}, "spectral radius of the matrix ");
  const radiusValue = make(radiusLabel, "output", { style: "font-weight:bold" });
  const radius = make(radiusLabel, "input", { type: "range", min: 0, max: state().radii.length - 1, step: 1 });
  const distanceLabel = make(el, "label", {}, "distance in steps ");
  const distanceValue = make(distanceLabel, "output", { style: "font-weight:bold" });
  const distance = make(distanceLabel, "input", { type: "range", min: 0, max: steps, step: 1 });
  const kindLabel = make(el, "label", {}, "each step is ");
  const kind = make(kindLabel, "select");
  for (const name of names) make(kind, "option", { value: name }, name);
  radius.addEventListener("input", () => set({ radius: +radius.value }));
  distance.addEventListener("input", () => set({ distance: +distance.value }));
  kind.addEventListener("change", () => set({ kind: kind.value }));

  const svg = make(el, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.style.touchAction = "auto";
  for (let power = low; power <= high; power += 3) {
    const y = py(10 ** power), one = power === 0;
    make(svg, "line", { x1: left, x2: width - right, y1: y, y2: y, stroke: one ? "var(--soft)" : "var(--line)", "stroke-width": one ? 1.5 : 0.6 });
    make(svg, "text", { x: left - 5, y: y + 4, "text-anchor": "end", style: "font-size:12px" }, one ? "1" : `10${raised(power)}`);
  }
  for (let t = 0; t <= steps; t += 10) make(svg, "text", { x: px(t), y: height - 12, "text-anchor": "middle", style: "font-size:12px" }, String(t));
  make(svg, "text", { x: (left + width) / 2, y: height - 1, "text-anchor": "middle", style: "font-size:12px" }, "distance in steps");
  const line = make(svg, "path", { fill: "none", stroke: "#4477AA", "stroke-width": 2.5 });
  const rule = make(svg, "line", { y1: top, y2: height - bottom, stroke: "#EE7733", "stroke-width": 1.5 });
  const dot = make(svg, "circle", { r: 5, fill: "#EE7733" });
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0 0; min-height:2.8em" });

  const draw = () => {
    const { radii, curves, radius: r, kind: name, distance: d } = state(), values = curves[name][r];
    radius.value = r; distance.value = d; kind.value = name;
    radiusValue.textContent = radii[r].toFixed(2);
    distanceValue.textContent = d;
    line.setAttribute("d", values.map((v, t) => `${t ? "L" : "M"}${px(t).toFixed(1)},${py(v).toFixed(1)}`).join(""));
    for (const end of ["x1", "x2"]) rule.setAttribute(end, px(d));
    dot.setAttribute("cx", px(d)); dot.setAttribute("cy", py(values[d]));
    const said_ = `A push on the state ${d} steps ago reaches the state now with ${shown(values[d])} times its length.`;
    said.textContent = said_ + (values[d] < 1e-3 ? " Nothing is learnt over this distance." : values[d] > 1e3 ? " One step of gradient descent lands far off." : "");
    svg.setAttribute("aria-label", said_);
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
