"use strict";
// The page works without this script; with it tables sort, and every figure follows the chosen N.
// Costs are the integers that were counted at every N of the slider, as BigInt.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // -- theme ---------------------------------------------------------------------------------------------------------
  const themes = ["auto", "light", "dark"];
  const setTheme = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    byId("theme").textContent = `Theme: ${name}`;
  };
  byId("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "auto";
    setTheme(themes[(themes.indexOf(now) + 1) % themes.length]);
  });

  // -- sortable tables -----------------------------------------------------------------------------------------------
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const number = cell.querySelector("data")?.value;
    return number === undefined ? cell.textContent.trim() : number === "" ? null : BigInt(number);
  };
  const compareKeys = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a < b ? -1 : a > b ? 1 : 0);
  const sortBy = (header) => {
    const table = header.closest("table");
    const falling = header.getAttribute("aria-sort") === "ascending"
      || (header.classList.contains("number") && header.getAttribute("aria-sort") !== "descending");
    all("th[aria-sort]", table).forEach((other) => other.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const keyed = [...table.tBodies[0].rows].map((row) => [keyOf(row, header.cellIndex), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return (falling ? -1 : 1) * compareKeys(a, b);
    });
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  };
  all("th[aria-sort] button").forEach((button) => button.addEventListener("click", () => sortBy(button.parentElement)));

  // -- tables that are wider than the screen ---------------------------------------------------------------------------
  const widths = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth + 1);
  }));
  all(".wide").forEach((one) => widths.observe(one));

  // -- the tree, and printing ----------------------------------------------------------------------------------------
  all("button[data-tree]").forEach((button) => button.addEventListener("click", () => {
    const open = button.dataset.open === "yes";
    all("details", byId(button.dataset.tree)).forEach((one) => { one.open = open; });
  }));
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));

  const page = JSON.parse(byId("figures").textContent);
  if (!page.systems) return;

  // -- counted figures -----------------------------------------------------------------------------------------------
  // From a place on a figure stands up to the next; null: the system can't have this N. Without any it has none.
  const valueOf = (runs, place) => {
    const run = runs.findLast(([first]) => first <= place);
    return run === undefined ? 0n : run[1] === null ? null : BigInt(run[1]);
  };
  const whole = (system, of, quantity, place) => valueOf(system.whole[of][quantity], place);
  const rowsSum = (system, rows, quantity, place) => {
    const values = rows.map((row) => valueOf(system.rows[row][quantity], place));
    const ownOperations = whole(system, "total", "own_operations", place) === 1n;
    return ownOperations && !values.includes(null) ? values.reduce((sum, value) => sum + value, 0n) : null;
  };

  // -- numbers as texts, as in the tables that were written with the page ---------------------------------------------
  const METRIC = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"].map((name, power) => [1000n ** BigInt(power), name]);
  const BINARY = ["B", ...[..."KMGTPEZY"].map((letter) => `${letter}iB`)].map((name, power) => [1024n ** BigInt(power), name]);
  const toFixed = (value, digits) => {
    const scaled = value * 10 ** digits;
    const even = Math.abs(scaled % 1) === 0.5 ? 2 * Math.round(scaled / 2) / 10 ** digits : value;
    return even.toFixed(digits);
  };
  const rounded = (value, digits) => {
    const wholeDigits = String(Math.trunc(value)).length;
    const text = toFixed(value, Math.max(digits - wholeDigits, 0));
    const grew = text.split(".")[0].length > wholeDigits && text.includes(".");
    return grew ? text.slice(0, -1).replace(/\.$/, "") : text;
  };
  const prefixed = (value, table, base) => {
    for (const [unit, name] of table) {
      const number = rounded(Number(value) / Number(unit), 4);
      if (Number(number) < base || name === table.at(-1)[1]) return `${number} ${name}`.trim();
    }
    return "";
  };
  const countText = (value) => {
    if (value < 10000n) return String(value);
    return value >= 10n ** 27n ? Number(value).toExponential(3) : prefixed(value, METRIC, 1000);
  };
  const sizeText = (value) => {
    const [unit, name] = BINARY.findLast(([least]) => value >= least) ?? BINARY[0];
    return value % unit === 0n ? `${value / unit} ${name}` : prefixed(value, BINARY, 1024);
  };
  const textOf = (quantity, value) => (quantity.endsWith("bytes") ? sizeText : countText)(value);
  const percent = (part, total) => (total ? `${toFixed(100 * Number(part) / Number(total), 1)} %` : "–");
  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

  // -- the figures at the chosen N -------------------------------------------------------------------------------------
  const figures = all("data[data-quantity]").map((element) => ({
    element,
    system: page.systems[element.dataset.system],
    quantity: element.dataset.quantity,
    whole: element.dataset.whole,
    rows: (element.dataset.rows ?? "").split(" ").filter(Boolean).map(Number),
    share: element.dataset.quantity === "macs" ? element.parentElement.querySelector("[data-share]") : null,
    exact: element.parentElement.querySelector(".exact"),
  }));
  const showFigure = (figure, place) => {
    const { element, system, quantity } = figure;
    const value = figure.whole
      ? whole(system, figure.whole, quantity, place) : rowsSum(system, figure.rows, quantity, place);
    element.value = value === null ? "" : String(value);
    element.textContent = value === null ? "–" : value === 0n ? "0" : textOf(quantity, value);
    if (figure.exact) figure.exact.textContent = value === null ? "" : grouped(value);
    if (figure.share) {
      figure.share.textContent = value === null ? "–" : percent(value, whole(system, "total", "macs", place));
    }
  };

  // -- the plot --------------------------------------------------------------------------------------------------------
  const svg = byId("plot");
  const metric = byId("metric");
  const make = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const curvesOf = (quantity) => page.systems.map((system) => page.sizes
    .map((size, place) => [size, whole(system, "total", quantity, place), place])
    .filter(([, value]) => value));
  // Powers of `base` between two numbers, at most `most` of them.
  const powers = (low, high, base, most) => {
    const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
    const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    const found = [];
    for (let power = Math.max(first, 0); power <= last; power += step) found.push(BigInt(base) ** BigInt(power));
    return found;
  };
  const countTicks = (low, high) => {
    const tens = powers(low, high, 10, 7);
    return tens.length > 1 ? tens : powers(low, high, 2, 7);
  };
  // Powers of ten, or both ends of a narrow range.
  const sizeTicks = (first, last) => {
    const tens = powers(first, last, 10, 6);
    return tens.length > 1 ? tens : [first, last].map(BigInt);
  };
  // Labels moved down off each other; those that would end far from their lines are left out.
  const apart = (labels, gap, furthest) => {
    let free = -Infinity;
    return labels.sort((a, b) => a.y - b.y).filter((label) => {
      const y = Math.max(label.y, free);
      if (y - label.y > furthest) return false;
      [label.y, free] = [y, y + gap];
      return true;
    });
  };
  const scales = (curves, width, height) => {
    const values = curves.flat().map(([, value]) => Number(value));
    const [low, high] = [Math.min(...values) / 1.3, Math.max(...values) * 1.3];
    const [first, last] = [page.sizes[0], page.sizes.at(-1)];
    const [left, right, top, bottom] = [width < 560 ? 62 : 70, width - Math.min(130, width / 4.5), 12, height - 44];
    const across = (n) => left + (right - left) * (Math.log(n / first) / Math.log(last / first || 2));
    const up = (value) => bottom - (bottom - top) * (Math.log(value / low) / Math.log(high / low));
    return { low, high, first, last, left, right, top, bottom, across, up };
  };
  const axes = (to, quantity, scale) => {
    for (const value of quantity.endsWith("bytes") ? powers(scale.low, scale.high, 4, 7) : countTicks(scale.low, scale.high)) {
      const y = scale.up(Number(value));
      const text = textOf(quantity, value).replace(/\.0+(?= |$)/, "");
      to.append(make("line", { class: "grid", x1: scale.left, x2: scale.right, y1: y, y2: y }));
      to.append(make("text", { class: "tick", x: scale.left - 6, y: y + 4, "text-anchor": "end" }, text));
    }
    for (const n of sizeTicks(scale.first, scale.last)) {
      const x = scale.across(Number(n));
      to.append(make("line", { class: "grid", x1: x, x2: x, y1: scale.top, y2: scale.bottom }));
      to.append(make("text", { class: "tick", x, y: scale.bottom + 17, "text-anchor": "middle" }, grouped(n)));
    }
    const middle = (scale.left + scale.right) / 2;
    to.append(make("text", { x: middle, y: scale.bottom + 37, "text-anchor": "middle" }, `N, tokens${page.of_axis} (log)`));
  };
  const draw = (place) => {
    const quantity = metric.value;
    const curves = curvesOf(quantity);
    const [width, height] = [Math.max(svg.clientWidth, 320), svg.clientWidth < 560 ? 260 : 400];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    if (!curves.flat().length) return;
    const scale = scales(curves, width, height);
    axes(svg, quantity, scale);
    const x = place === null ? 0 : scale.across(page.sizes[place]);
    if (place !== null) svg.append(make("line", { class: "cursor", x1: x, x2: x, y1: scale.top, y2: scale.bottom }));
    const labels = [];
    curves.forEach((curve, number) => {
      if (!curve.length) return;
      const points = curve.map(([n, value]) => `${scale.across(n).toFixed(1)},${scale.up(Number(value)).toFixed(1)}`);
      svg.append(make("polyline", { class: `curve line-${number % 8}`, points: points.join(" ") }));
      const here = curve.find(([, , at]) => at === place);
      if (here) svg.append(make("circle", { class: `dot dot-${number % 8}`, cx: x, cy: scale.up(Number(here[1])), r: 5 }));
      const [n, value] = curve.at(-1);
      labels.push({ x: scale.across(n) + 8, y: scale.up(Number(value)) + 4, name: page.systems[number].name });
    });
    const most = Math.max(4, Math.floor((width - scale.right - 8) / 7.5));
    for (const { x: at, y, name } of apart(labels, 15, 40)) {
      svg.append(make("text", { x: at, y }, name.length > most ? `${name.slice(0, most - 1)}…` : name));
    }
    const word = metric.selectedOptions[0].textContent;
    const spans = curves.map((curve, number) => (curve.length
      ? `${page.systems[number].name} from ${textOf(quantity, curve[0][1])} at ${grouped(curve[0][0])} to ${textOf(quantity, curve.at(-1)[1])} at ${grouped(curve.at(-1)[0])}`
      : `${page.systems[number].name} has none`));
    svg.setAttribute("aria-label", `${word} against N, both axes logarithmic: ${spans.join("; ")}`);
  };

  // -- the slider ------------------------------------------------------------------------------------------------------
  const slider = byId("n");
  let chosen = null; // systems are at their own N until one is chosen
  const choose = () => {
    const place = Number(slider.value);
    const label = `N = ${page.labels[place]}`;
    slider.setAttribute("aria-valuetext", label);
    byId("n-text").textContent = label;
    chosen = place;
    all(".chosen").forEach((element) => { element.textContent = label; });
    figures.forEach((figure) => showFigure(figure, place));
    draw(place);
  };
  slider.addEventListener("input", choose);
  metric.addEventListener("change", () => draw(chosen));
  new ResizeObserver(() => draw(chosen)).observe(svg.parentElement);
  if (page.common) choose();
  else draw(null);
  // For tests, and for whoever looks at the numbers from the console.
  globalThis.xfcost = { page, whole, rowsSum, textOf };
})();
