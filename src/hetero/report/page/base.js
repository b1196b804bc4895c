// Small helpers: elements, numbers for people, colors.

/** The element of an id. */
const byId = (id) => document.getElementById(id);

/** A new element. Attributes by name, "class" and "on…" among them; children are elements or text, never markup. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "color") element.style.background = value;
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A name as text that may be broken after what separates its parts, but not within numbers. */
function breakable(name) {
  return name.split(/(?<=[/.:])(?=[^/.:\d])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
}

const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const three = (number) => (number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2));

/** 12 B, 3.40 kB; "?" for what is not known (negative). In thousands, as plans and commands say it. */
function bytesText(size) {
  if (size < 0) return "?";
  if (size < 1000) return `${size} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    size /= 1000;
    if (size < 999.5) return `${three(size)} ${unit}`;
  }
  return `${three(size / 1000)} TB`;
}

/** 850 ns, 12.3 µs, 4.56 ms; "" for what was not measured (negative). */
function timeText(nanoseconds) {
  if (nanoseconds < 0) return "";
  if (nanoseconds < 1000) return `${Math.round(nanoseconds)} ns`;
  if (nanoseconds < 1e6) return `${three(nanoseconds / 1e3)} µs`;
  if (nanoseconds < 1e9) return `${three(nanoseconds / 1e6)} ms`;
  return `${three(nanoseconds / 1e9)} s`;
}

/** Text of at most so many characters, the middle left out. */
function elided(text, most) {
  if (text.length <= most) return text;
  const head = Math.floor((most - 1) / 2);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - 1 - head))}`;
}

/** Two colors "#rrggbb" mixed; share 1 is the first alone. */
function mixed(one, other, share) {
  const part = (color, at) => parseInt(color.slice(at, at + 2), 16);
  const channel = (at) => Math.round(part(other, at) + (part(one, at) - part(other, at)) * share);
  return `rgb(${channel(1)} ${channel(3)} ${channel(5)})`;
}

/** Black or white, whichever is easier to read on a color "#rrggbb" or "rgb(r g b)": the greater contrast by WCAG. */
function readable(color) {
  const parts = color.startsWith("#") ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)) : color.match(/\d+/g).map(Number);
  const [r, g, b] = parts.map((part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

/** The values of the style's variables, as the theme has them. */
function themeColors() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ground", "raised", "line", "text", "faint", "accent", "edge", "hover"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Calls f once per frame, however often it is asked to. */
function perFrame(f) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; f(); });
  };
}

/** A tool tip at the pointer: its first line is bold. */
const tip = {
  show(lines, x, y) {
    const element = byId("tip");
    element.replaceChildren(...lines.filter(Boolean).map((line, i) => make(i ? "span" : "b", { class: "name" }, line)));
    element.hidden = false;
    const box = element.getBoundingClientRect();
    const right = x + 14 + box.width > innerWidth;
    element.style.left = `${Math.max(4, right ? x - box.width - 10 : x + 14)}px`;
    element.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.height - 6))}px`;
  },
  hide() { byId("tip").hidden = true; },
};
for (const event of ["blur", "resize", "pointerdown", "wheel"]) addEventListener(event, tip.hide, { passive: true });
document.addEventListener("scroll", tip.hide, { capture: true, passive: true });
document.addEventListener("pointerleave", tip.hide); // the pointer left the window
document.addEventListener("keydown", (event) => {
  if (!byId("tip").hidden && event.key === "Escape") event.stopPropagation(); // Escape hides the tip and does nothing else
  tip.hide();
}, { capture: true });

/** Says it to those who do not see the page. */
function say(text) { byId("said").textContent = text; }
