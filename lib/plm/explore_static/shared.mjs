// Put before every front end: how they all build their elements.
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "line", "path", "circle", "rect", "text", "polygon"]);

const make = (parent, name, attributes = {}, text = "") => {
  const node = DRAWN.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
  return node;
};
