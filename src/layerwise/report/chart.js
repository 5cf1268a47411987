"use strict";
// One pair's cosine by layer as a small line chart, drawn as wide as its place. Pure: from values to an SVG element.

function svgElement(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const known = (value) => value !== null && value !== undefined;
const threeDigits = (value) => (known(value) ? value.toFixed(3).replace("-", "\u2212") : "\u2013");

// Round steps of 1, 2 or 5 that span the values in about five lines.
function ticks(low, high) {
  const span = Math.max(high - low, 0.01);
  const power = 10 ** Math.floor(Math.log10(span / 4));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => span / each <= 5);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toFixed(6)));
}

// Missing values break the line.
function linePath(values, x, y) {
  let pen = "M";
  return values.map((value, index) => {
    if (!known(value)) { pen = "M"; return ""; }
    const step = `${pen}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function frameOf(width, view) {
  const height = width < 480 ? 240 : 290;
  const marks = ticks(view.low, view.high);
  const [left, top, bottom] = [44, 18, height - 42];
  const slot = Math.min(64, width * 0.14); // the mix stands right of the layers, for it is none of them
  const right = width - slot - 22; // room for half of its figure
  const last = view.layers.length - 1;
  const across = right - left - 12;
  const place = (count) => (index) => (count > 1 ? left + 12 + (across * index) / (count - 1) : (left + right) / 2);
  const [low, high] = [marks[0], marks[marks.length - 1]];
  const y = (value) => bottom - ((bottom - top) * (value - low)) / (high - low);
  return { width, height, marks, left, top, bottom, right, slot, last, place, x: place(last + 1), y, mixX: right + slot };
}

function drawAxes(svg, frame, layers) {
  const digits = Math.max(...frame.marks.map((mark) => (String(mark).split(".")[1] || "").length));
  for (const mark of frame.marks) {
    svg.append(svgElement("line", { class: "rule", x1: frame.left, x2: frame.width, y1: frame.y(mark), y2: frame.y(mark) }));
    const label = mark.toFixed(digits).replace("-", "\u2212");
    svg.append(svgElement("text", { x: frame.left - 8, y: frame.y(mark) + 4, "text-anchor": "end" }, label));
  }
  const room = Math.max(...layers.map((label) => label.length)) * 7.5 + 8;
  const every = Math.max(1, Math.ceil((layers.length * room) / (frame.right - frame.left)));
  layers.forEach((label, index) => {
    if ((frame.last - index) % every) return; // the last one always
    svg.append(svgElement("text", { x: frame.x(index), y: frame.bottom + 18, "text-anchor": "middle" }, label));
  });
  svg.append(svgElement("text", { x: frame.mixX, y: frame.bottom + 18, "text-anchor": "middle" }, "mix"));
  const middle = (frame.left + frame.right) / 2;
  svg.append(svgElement("text", { x: middle, y: frame.bottom + 36, "text-anchor": "middle" }, "layer"));
}

function drawValue(svg, frame, x, value) {
  const y = Math.max(frame.y(value) - 10, 11);
  svg.append(svgElement("text", { class: "value", x, y, "text-anchor": "middle" }, threeDigits(value)));
}

function drawMarks(svg, frame, view) {
  const [last, mix] = [view.own[frame.last], view.mix];
  if (known(mix)) {
    const y = frame.y(mix);
    svg.append(svgElement("path", { class: "mixed dashes", d: `M${frame.left} ${y}H${frame.mixX}` }));
  }
  view.own.forEach((value, index) => {
    if (!known(value)) return;
    const radius = index === frame.last ? 5.5 : 2.75;
    const kind = index === frame.last ? "own hollow" : "own";
    svg.append(svgElement("circle", { class: kind, cx: frame.x(index), cy: frame.y(value), r: radius }));
  });
  if (known(last)) drawValue(svg, frame, frame.x(frame.last), last);
  if (!known(mix)) return;
  const [x, y] = [frame.mixX, frame.y(mix)];
  svg.append(svgElement("polygon", { class: "mixed", points: `${x},${y - 7} ${x + 7},${y} ${x},${y + 7} ${x - 7},${y}` }));
  drawValue(svg, frame, x, mix);
}

// A column for each layer, and one for the mix, answers to the pointer and to the keyboard.
function drawColumns(svg, frame, labels) {
  const gap = frame.last > 0 ? frame.x(1) - frame.x(0) : 60;
  labels.forEach((label, index) => {
    const isMix = index > frame.last;
    const [x, width] = isMix ? [frame.mixX, 44] : [frame.x(index), Math.min(gap, 60)];
    const box = { x: x - width / 2, y: frame.top - 12, width, height: frame.bottom - frame.top + 12 };
    svg.append(svgElement("rect", { class: "point", "data-label": label, ...box }));
  });
}

// view: layers, own, mean, mix, second (or null), low, high, labels (one for each layer, then the mix's)
function drawChart(width, view) {
  const frame = frameOf(width, view);
  const svg = svgElement("svg", { viewBox: `0 0 ${width} ${frame.height}`, width, height: frame.height });
  drawAxes(svg, frame, view.layers);
  svg.append(svgElement("path", { class: "others", d: linePath(view.mean, frame.x, frame.y) }));
  if (view.second) {
    const x = frame.place(view.second.length); // from first to last, however many layers it has
    svg.append(svgElement("path", { class: "second", d: linePath(view.second, x, frame.y) }));
  }
  svg.append(svgElement("path", { class: "own", d: linePath(view.own, frame.x, frame.y) }));
  drawMarks(svg, frame, view);
  drawColumns(svg, frame, view.labels);
  return svg;
}
