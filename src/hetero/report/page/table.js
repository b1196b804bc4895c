// Tables of any length: only the rows that are seen are in the page.

const ROW = 26;

/** A context that measures text as tables show it. */
function measuring() {
  measuring.context ??= document.createElement("canvas").getContext("2d");
  measuring.context.font = `${getComputedStyle(document.body).fontSize} ${FONT}`;
  return measuring.context;
}

/**
 * columns: {title, width, number?, name?, text(row), key(row)?, swatch?(row)}; key gives what is sorted by, text by
 * default; of a name that is too long the middle is left out, since names differ at their ends.
 * choose(row) is called when a row is chosen by pointer or Enter.
 */
class Table {
  constructor(label, columns, count, choose) {
    Object.assign(this, { columns, count, choose, sorted: -1, down: false, active: -1, selected: -1, ranks: new Map() });
    this.rows = Int32Array.from({ length: count }, (_, i) => i);
    this.all = this.rows;
    const widths = columns.map((column) => column.width).join(" ");
    this.widths = widths;
    this.head = make("div", { class: "head", role: "row" });
    columns.forEach((column, i) => {
      const button = make("button", {
        type: "button", role: "columnheader", "aria-sort": "none", class: column.number ? "number" : "",
        title: `Sort by ${column.title}`, onclick: () => this.sortBy(i),
      }, column.title);
      this.head.append(button);
    });
    this.head.style.gridTemplateColumns = widths;
    // The heading and the rows are as wide as each other, however narrow the window.
    const least = columns.reduce((sum, { width }) => sum + Number(width.match(/(\d+)px/)[1]), 0);
    this.body = make("div", { class: "body", role: "rowgroup" });
    this.head.style.minWidth = this.body.style.minWidth = `${least}px`;
    this.none = make("p", { class: "none", hidden: true }, "Nothing matches.");
    this.scroller = make("div", { class: "scroller", tabindex: "0", role: "grid", "aria-label": label }, this.head, this.body, this.none);
    this.element = make("div", { class: "grid" }, this.scroller);
    this.draw = perFrame(() => this.drawRows());
    this.scroller.addEventListener("scroll", this.draw);
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(this.draw).observe(this.scroller);
    this.changed();
  }

  /** Shows these rows only, in the order that is set. */
  filter(rows) {
    this.all = rows;
    this.rows = rows;
    this.active = -1;
    if (this.sorted >= 0) this.sort();
    this.scroller.scrollTop = 0;
    this.changed();
  }

  sortBy(column) {
    if (this.sorted === column) {
      if (this.down !== Boolean(this.columns[column].number)) this.sorted = -1; // third click: as it was
      else this.down = !this.down;
    } else {
      this.sorted = column;
      this.down = Boolean(this.columns[column].number); // the largest first
    }
    [...this.head.children].forEach((button, i) => {
      const state = i !== this.sorted ? "none" : this.down ? "descending" : "ascending";
      button.setAttribute("aria-sort", state);
      button.textContent = this.columns[i].title + (state === "none" ? "" : this.down ? " ▾" : " ▴");
    });
    this.sort();
    this.scroller.scrollTop = 0;
    this.changed();
  }

  sort() {
    if (this.sorted < 0) { this.rows = this.all; return; }
    const rank = this.rankOf(this.sorted), sign = this.down ? -1 : 1;
    this.rows = this.all.slice().sort((a, b) => sign * (rank[a] - rank[b]) || a - b);
  }

  /** Per row its place in a column's order: strings are compared once. */
  rankOf(column) {
    let rank = this.ranks.get(column);
    if (!rank) {
      const { key, text, number } = this.columns[column], value = key ?? text;
      const values = Array.from({ length: this.count }, (_, row) => value(row));
      rank = new Float64Array(this.count);
      if (number) values.forEach((one, row) => { rank[row] = one; });
      else {
        const distinct = [...new Set(values)].sort((a, b) => (a < b ? -1 : 1));
        const places = new Map(distinct.map((one, i) => [one, i]));
        values.forEach((one, row) => { rank[row] = places.get(one); });
      }
      this.ranks.set(column, rank);
    }
    return rank;
  }

  changed() {
    this.body.style.height = `${this.rows.length * ROW}px`;
    this.none.hidden = this.rows.length > 0;
    this.scroller.setAttribute("aria-rowcount", this.rows.length + 1);
    this.draw();
  }

  drawRows() {
    const height = this.scroller.clientHeight, above = this.head.offsetHeight;
    if (!height) return;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - 5);
    const last = Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + height - above) / ROW) + 5);
    const drawn = [], room = Array.from(this.head.children, (button) => button.clientWidth - 18);
    for (let at = first; at < last; at++) {
      const row = this.rows[at];
      const cells = this.columns.map((column, i) => {
        const text = column.text(row);
        const cell = make("span", { class: column.number ? "cell number" : "cell", role: "gridcell", title: column.number ? undefined : elided(text, 600) });
        if (column.swatch) cell.append(make("i", { class: "swatch", color: column.swatch(row) }));
        cell.append(column.name ? fitted(measuring(), elided(text, 600), room[i]) : elided(text, 300));
        return cell;
      });
      const element = make("div", {
        class: at === this.active ? "row active" : "row", role: "row", "aria-rowindex": at + 2,
        "aria-selected": String(row === this.selected),
        onclick: () => { this.active = at; this.choose(row); },
      }, ...cells);
      element.style.top = `${at * ROW}px`;
      element.style.gridTemplateColumns = this.widths;
      drawn.push(element);
    }
    this.body.replaceChildren(...drawn);
  }

  /** Marks a row, and brings it into sight if it is among those shown. */
  select(row, reveal = true) {
    this.selected = row;
    if (row >= 0 && reveal) {
      const at = this.rows.indexOf(row);
      if (at >= 0) { this.active = at; this.see(at); }
    }
    this.draw();
  }

  see(at) {
    const room = this.scroller.clientHeight - this.head.offsetHeight, top = this.scroller.scrollTop;
    if (at * ROW < top) this.scroller.scrollTop = at * ROW;
    else if ((at + 1) * ROW > top + room) this.scroller.scrollTop = (at + 1) * ROW - room;
  }

  key(event) {
    if (event.target !== this.scroller) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      const last = this.rows.length - 1;
      this.active = Math.max(0, Math.min(last, this.active + steps[event.key]));
      this.see(this.active);
      if (last >= 0) say(this.columns.map((column) => `${column.title} ${elided(column.text(this.rows[this.active]), 80)}`).join(", "));
      this.draw();
    } else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.choose(this.rows[this.active]);
    else return;
    event.preventDefault();
  }
}
