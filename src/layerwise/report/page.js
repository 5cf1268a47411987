// What the page does beyond being read: theme, tooltips, sorting, contents, copying.

function storedTheme() {
  try { return localStorage.getItem("layerwise-theme"); } catch { return null; } // files and private windows may have none
}

function storeTheme(theme) {
  try { localStorage.setItem("layerwise-theme", theme); } catch { /* then it lasts as long as the page */ }
}

function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

function startTheme() {
  const button = document.getElementById("theme_button");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to the ${isDark() ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    setTheme(theme);
    storeTheme(theme);
    name();
  });
  system.addEventListener("change", name);
  let before; // paper is light
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; setTheme("light"); });
  addEventListener("afterprint", () => {
    if (before) setTheme(before);
    else delete document.documentElement.dataset.theme;
  });
  name();
  button.hidden = false;
}

// The nearest point within reach of the pointer; those under it first, then by the distance to their middle.
function nearestPoint(drawing, x, y, reach) {
  let [best, bestFar, bestMiddle] = [null, reach, Infinity];
  for (const point of drawing.querySelectorAll(".point[data-label]")) {
    const box = point.getBoundingClientRect();
    const far = Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom));
    const middle = Math.hypot((box.left + box.right) / 2 - x, (box.top + box.bottom) / 2 - y);
    if (far < bestFar || (far === bestFar && middle < bestMiddle)) [best, bestFar, bestMiddle] = [point, far, middle];
  }
  return best;
}

// One stop for the Tab key in each drawing; the left and right arrows go on from there.
function makePointsReachable(drawing, focused = -1) {
  const points = [...drawing.querySelectorAll(".point[data-label]")];
  if (points.length) drawing.querySelector("svg").setAttribute("role", "group"); // an image would hide them
  points.forEach((point, index) => {
    point.querySelector(":scope > title")?.remove(); // without script, the browser's own tooltip; with it, a second one
    point.setAttribute("tabindex", index === Math.max(focused, 0) ? "0" : "-1");
    point.setAttribute("role", "img");
    point.setAttribute("aria-label", point.dataset.label);
  });
  if (focused >= 0 && points[focused]) points[focused].focus({ preventScroll: true });
}

function stepPoint(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const point = event.target.closest(".drawing .point");
  if (!step || !point) return;
  const points = [...point.closest(".drawing").querySelectorAll(".point[data-label]")];
  const next = points[points.indexOf(point) + step];
  event.preventDefault();
  if (!next) return;
  point.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

function startTooltips() {
  const tip = document.createElement("div");
  tip.className = "tooltip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let told = null;

  function hide() {
    if (told) told.classList.remove("told");
    told = null;
    tip.hidden = true;
  }

  function show(target, words, x, y, below) {
    if (told !== target) hide();
    told = target;
    target.classList.add("told");
    tip.textContent = words;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(x - box.width / 2, 8), document.documentElement.clientWidth - box.width - 8);
    const top = y - box.height - 10 >= 4 ? y - box.height - 10 : below + 10;
    tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  function tell(target) {
    const box = target.getBoundingClientRect();
    show(target, target.dataset.label || target.dataset.tip, (box.left + box.right) / 2, box.top, box.bottom);
  }

  function follow(event) {
    const helped = event.target.closest("[data-tip]");
    const drawing = event.target.closest(".drawing");
    const point = drawing && nearestPoint(drawing, event.clientX, event.clientY, event.pointerType === "mouse" ? 14 : 28);
    if (helped) tell(helped);
    else if (point) {
      const box = point.getBoundingClientRect(); // of a tall column the pointer's height, of a small point its own
      const top = box.height > 40 ? event.clientY : box.top;
      show(point, point.dataset.label, (box.left + box.right) / 2, top, Math.max(box.bottom, top));
    } else if (told && told !== document.activeElement) hide();
  }

  document.addEventListener("pointermove", follow);
  document.addEventListener("pointerdown", follow);
  document.addEventListener("focusin", (event) => {
    const target = event.target.closest(".point[data-label], [data-tip]");
    if (target) tell(target);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => (event.key === "Escape" ? hide() : stepPoint(event)));
  document.querySelectorAll(".drawing").forEach((drawing) => makePointsReachable(drawing));
}

// Missing values last, whichever way.
function compareCells(one, two, isNumber, direction) {
  const [a, b] = [one, two].map((cell) => (isNumber ? cell.dataset.value : cell.textContent));
  const empty = (cell) => cell.dataset.value === "";
  if (empty(one) || empty(two)) return empty(one) - empty(two);
  return direction * (isNumber ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true }));
}

function sortTable(table, column) {
  const headings = [...table.tHead.rows[0].cells];
  const heading = headings[column];
  const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  headings.forEach((each) => each.removeAttribute("aria-sort"));
  heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  const isNumber = heading.classList.contains("number");
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, two) => compareCells(one.cells[column], two.cells[column], isNumber, direction));
  table.tBodies[0].append(...rows);
}

function startTable(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    if (heading.dataset.help) button.dataset.tip = heading.dataset.help;
    button.addEventListener("click", () => sortTable(table, column));
    heading.append(button);
  });
}

// The last section that has begun in the upper third of the window is the one being read.
function startContents() {
  const links = [...document.querySelectorAll(".contents a")];
  const sections = links.map((link) => document.querySelector(link.hash));
  const mark = () => {
    const begun = sections.filter((section) => section.getBoundingClientRect().top < innerHeight / 3);
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const current = atEnd && scrollY > 0 ? sections[sections.length - 1] : begun[begun.length - 1] || sections[0];
    links.forEach((link, index) => {
      if (sections[index] === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  };
  document.addEventListener("scroll", mark, { passive: true });
  mark();
}

function startCopying(command) {
  if (!navigator.clipboard) return;
  const [box, button] = [document.createElement("div"), document.createElement("button")];
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command); // not allowed: one key is left to press
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  command.replaceWith(box);
  box.append(command, button);
}

setTheme(storedTheme()); // before anything is drawn
document.addEventListener("DOMContentLoaded", () => {
  startTheme();
  startExplorer();
  startTooltips();
  document.querySelectorAll("table.sortable").forEach(startTable);
  document.querySelectorAll(".commands pre").forEach(startCopying);
  startContents();
});
