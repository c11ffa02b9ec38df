// Slides: one section is shown at a time; the address keeps its number.
window.MathJax = {
  tex: { inlineMath: [["$", "$"], ["\\(", "\\)"]] },
  options: { enableMenu: false, skipHtmlTags: ["pre", "code", "script", "style"] },
  svg: { fontCache: "local" },
};
const sections = [...document.querySelectorAll("section")];
const numberInAddress = () => Math.min(sections.length, Math.max(1, parseInt(location.hash.slice(1), 10) || 1)) - 1;
let here = numberInAddress();
function show(n) {
  here = Math.min(sections.length - 1, Math.max(0, n));
  sections.forEach((section, k) => section.classList.toggle("here", k === here));
  document.getElementById("place").textContent = `${here + 1} / ${sections.length}`;
  history.replaceState(null, "", `#${here + 1}`);
}
const steps = { " ": 1, ArrowRight: 1, ArrowDown: 1, PageDown: 1, Enter: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1, Backspace: -1 };
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "f") document.documentElement.requestFullscreen?.();
  else if (event.key === "Home") show(0);
  else if (event.key === "End") show(sections.length - 1);
  else if (event.key in steps) {
    event.preventDefault();
    show(here + steps[event.key]);
  }
});
addEventListener("click", (event) => show(here + (event.clientX < innerWidth / 3 ? -1 : 1)));
addEventListener("hashchange", () => show(numberInAddress()));
show(here);
