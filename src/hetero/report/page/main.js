// Puts the report together: what is chosen, searched and shown, and who is told of it.

class Report {
  constructor(data) {
    this.data = data;
    this.drawn = -1; // the subgraph whose nodes are drawn, -1 for the subgraphs
    this.subgraph = -1;
    this.node = -1;
    this.device = -1;
    this.only = -1; // the subgraph that the table of nodes is limited to
    this.found = null;
    this.header();
    this.details = new Details(data, {
      subgraph: (s) => this.chooseSubgraph(s, true),
      node: (node) => this.chooseNode(node, true),
      open: (s) => this.open(s),
      list: (s) => this.listNodes(s),
    });
    this.graph = new GraphView(data, {
      at: (box, reveal) => this.chooseBox(box, reveal),
      open: (box) => this.open(this.graph.scene.subgraph(box)),
      back: () => this.back(),
    });
    this.tabs();
    this.search();
    this.splitter();
    this.help();
    this.graph.view.fitCanvas();
    this.draw(-1);
    this.details.plan();
  }

  header() {
    const { data } = this;
    byId("model").textContent = data.model || "model";
    byId("model").title = data.model;
    const parts = [plural(data.numSubgraphs, "subgraph"), plural(data.numNodes, "node"), plural(data.valueNames.length, "boundary value")];
    if (data.run) parts.push(`${data.run.predicted ? "predicted" : "one inference"}: ${timeText(data.runLength)}`);
    byId("summary").textContent = parts.join(" · ");
    const used = data.devices.map(() => 0), count = data.devices.map(() => 0);
    data.sizes.forEach((size, s) => { used[data.device(s)] += size; count[data.device(s)]++; });
    const times = data.devices.map(() => 0);
    if (data.run) data.timeOf.forEach((time, s) => { times[data.device(s)] += Math.max(0, time); });
    data.deviceTime = (device) => times[device];
    byId("legend").append(...data.devices.map((device, i) => make("button", {
      type: "button", "aria-pressed": "false", title: `Show what is on ${device}`, onclick: () => this.chooseDevice(this.device === i ? -1 : i),
    },
    make("i", { class: "swatch", color: data.colors[i] }), make("span", { class: "name" }, device),
    make("small", {}, [plural(used[i], "node"), plural(count[i], "subgraph"), data.run ? timeText(times[i]) : ""].filter(Boolean).join(" · ")))));
    const notices = data.warnings.map((warning) => make("p", { class: "name" }, warning));
    byId("notices").append(...notices);
    byId("notices").hidden = !notices.length;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const set = (on) => { document.documentElement.classList.toggle("dark", on); this.redraw(); };
    set(dark.matches);
    dark.addEventListener("change", () => set(dark.matches));
    byId("theme").onclick = () => set(!document.documentElement.classList.contains("dark"));
  }

  redraw() {
    this.graph?.view.redraw();
    this.timeline?.view.redraw();
  }

  // ---- tables

  tabs() {
    const { data } = this;
    const swatch = (subgraph) => (row) => data.color(subgraph(row));
    const inRun = (...columns) => (data.run ? columns : []);
    const timed = (column) => (row) => (column[row] < 0 ? "" : timeText(column[row]));
    this.nodes = new Table("Nodes", [
      { title: "Node", name: true, width: "minmax(260px, 3fr)", text: (n) => data.keys[n] },
      { title: "Operator", width: "minmax(110px, .7fr)", text: (n) => data.op(n) },
      { title: "Device", width: "minmax(90px, .5fr)", text: (n) => data.deviceName(data.subgraphOf[n]), swatch: swatch((n) => data.subgraphOf[n]) },
      { title: "Subgraph", width: "90px", number: true, text: (n) => String(data.subgraphOf[n] + 1), key: (n) => data.subgraphOf[n] },
      ...(data.run?.predicted ? [] : inRun(
        { title: "Time", width: "90px", number: true, text: timed(data.real ?? []), key: (n) => data.real[n] },
        { title: "CPU time", width: "90px", number: true, text: timed(data.cpu ?? []), key: (n) => data.cpu[n] },
        { title: "Ran as", width: "minmax(110px, .8fr)", text: (n) => (data.how[n] < 0 ? "" : data.strings[data.how[n]]) },
      )),
      { title: "Reason", width: "minmax(220px, 3fr)", text: (n) => data.reason(n) },
    ], data.numNodes, (node) => this.chooseNode(node, true));
    this.subgraphs = new Table("Subgraphs", [
      { title: "Subgraph", width: "90px", number: true, text: (s) => String(s + 1), key: (s) => -s },
      { title: "Device", width: "minmax(100px, .6fr)", text: (s) => data.deviceName(s), swatch: swatch((s) => s) },
      { title: "Nodes", width: "80px", number: true, text: (s) => data.sizes[s].toLocaleString("en"), key: (s) => data.sizes[s] },
      ...inRun({ title: "Time", width: "90px", number: true, text: timed(data.timeOf ?? []), key: (s) => data.timeOf[s] }),
      { title: "Reads", width: "90px", number: true, text: (s) => bytesText(data.bytesOf(data.read(s))), key: (s) => data.bytesOf(data.read(s)) },
      { title: "Gives", width: "90px", number: true, text: (s) => bytesText(data.bytesOf(data.made(s))), key: (s) => data.bytesOf(data.made(s)) },
      { title: "First node", name: true, width: "minmax(200px, 1fr)", text: (s) => data.keys[data.firstNode[s]] ?? "" },
      { title: "Last node", name: true, width: "minmax(200px, 1fr)", text: (s) => data.keys[data.firstNode[s + 1] - 1] ?? "" },
    ], data.numSubgraphs, (s) => this.chooseSubgraph(s, true));
    this.values = new Table("Boundary values", [
      { title: "Value", name: true, width: "minmax(220px, 1.5fr)", text: (v) => data.valueNames[v] },
      { title: "Type", width: "minmax(150px, 1fr)", text: (v) => data.type(v) },
      { title: "Bytes", width: "100px", number: true, text: (v) => bytesText(data.valueBytes[v]), key: (v) => data.valueBytes[v] },
      { title: "From", width: "minmax(110px, .5fr)", text: (v) => `${data.valueSource[v] + 1} ${data.deviceName(data.valueSource[v])}`, key: (v) => data.valueSource[v], swatch: swatch((v) => data.valueSource[v]) },
      { title: "To", width: "minmax(130px, 1fr)", text: (v) => this.readersText(v), swatch: (v) => data.color(data.readersOf(v)[0]) },
    ], data.valueNames.length, (v) => this.chooseSubgraph(data.valueSource[v], true));
    const panes = [
      ["Nodes", data.numNodes, this.nodes.element],
      ["Subgraphs", data.numSubgraphs, this.subgraphs.element],
      ["Boundary values", data.valueNames.length, this.values.element],
    ];
    if (data.run) {
      this.timeline = new Timeline(data, (s, node) => { if (node >= 0) this.chooseNode(node, true); else if (s >= 0) this.chooseSubgraph(s, true); });
      panes.unshift(["Timeline", null, this.timeline.element]);
    }
    this.panes = panes.map(([title, count, element], i) => {
      const pane = make("div", { class: "pane", role: "tabpanel", id: `pane-${i}`, "aria-labelledby": `tab-${i}`, hidden: true }, element);
      const tab = make("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `pane-${i}`, "data-pane": title, onclick: () => this.showPane(title) },
        title, count === null ? null : make("small", {}, ` ${count.toLocaleString("en")}`));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = this.panes[(i + step + this.panes.length) % this.panes.length];
        this.showPane(next.title);
        next.tab.focus();
      });
      byId("tabs").append(tab);
      byId("panes").append(pane);
      return { title, pane, tab };
    });
    this.showPane(this.panes[0].title);
  }

  readersText(value) {
    const { data } = this, readers = data.readersOf(value);
    return readers.map((s) => `${s + 1} ${data.deviceName(s)}`).join(", ");
  }

  showPane(title) {
    for (const { title: other, pane, tab } of this.panes) {
      const shown = other === title;
      pane.hidden = !shown;
      tab.setAttribute("aria-selected", String(shown));
      tab.tabIndex = shown ? 0 : -1;
    }
  }

  listNodes(subgraph) {
    this.only = subgraph;
    this.filterTables();
    this.showPane("Nodes");
    this.nodes.scroller.focus();
  }

  // ---- what is chosen

  chooseBox(box, reveal) {
    if (box < 0) { this.chooseNothing(); return; }
    const { scene } = this.graph, node = scene.node ? scene.node(box) : -1;
    if (node >= 0) this.chooseNode(node, reveal);
    else this.chooseSubgraph(scene.subgraph(box), reveal, box);
  }

  chooseNothing() {
    this.subgraph = this.node = -1;
    this.graph.setChosen(-1);
    this.timeline?.setChosen(-1);
    this.nodes.select(-1);
    this.subgraphs.select(-1);
    if (this.drawn >= 0) this.details.subgraph(this.drawn);
    else this.details.plan();
  }

  /** box: where it stands in the drawing, if it is a neighbor of the one whose nodes are drawn. */
  chooseSubgraph(s, reveal = false, box = -1) {
    this.subgraph = s;
    this.node = -1;
    if (this.drawn >= 0 && box < 0 && s !== this.drawn) this.draw(-1);
    this.graph.setChosen(this.drawn < 0 ? s : box, reveal);
    this.timeline?.setChosen(s);
    this.subgraphs.select(s);
    this.details.subgraph(s);
  }

  chooseNode(node, reveal = false) {
    const s = this.data.subgraphOf[node];
    this.subgraph = s;
    this.node = node;
    if (this.drawn >= 0 && this.drawn !== s) this.draw(s);
    this.graph.setChosen(this.drawn < 0 ? s : this.graph.scene.place(node), reveal);
    this.timeline?.setChosen(s);
    this.subgraphs.select(s);
    this.nodes.select(node);
    this.details.node(node);
  }

  chooseDevice(device) {
    this.device = device;
    [...byId("legend").children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === device)));
    this.graph.dim = device < 0 ? null : (s) => this.data.device(s) !== device;
    this.filterTables();
    this.redraw();
  }

  /** Draws the nodes of a subgraph in place of the subgraphs. */
  open(s) {
    if (!this.data.hasEdges) {
      this.listNodes(s);
      say("The plan was loaded without its model: nodes are listed, not drawn.");
      return;
    }
    this.draw(s);
    this.subgraph = s;
    this.timeline?.setChosen(s);
    if (this.node >= 0 && this.data.subgraphOf[this.node] === s) this.chooseNode(this.node, true);
    else { this.graph.setChosen(-1); this.details.subgraph(s); }
    this.graph.canvas.focus();
  }

  back() {
    if (this.drawn >= 0) {
      const s = this.drawn;
      this.draw(-1);
      this.chooseSubgraph(s, false);
      this.graph.canvas.focus();
    } else this.chooseNothing();
  }

  draw(subgraph) {
    this.drawn = subgraph;
    this.graph.chosen = -1;
    this.graph.show(subgraph);
    const { data } = this;
    const parts = subgraph < 0
      ? [make("strong", {}, plural(data.numSubgraphs, "subgraph"))]
      : [make("button", { type: "button", id: "back", onclick: () => this.back() }, "← All subgraphs"),
        make("strong", {}, `Subgraph ${subgraph + 1} on ${data.deviceName(subgraph)}`), make("span", { class: "faint" }, plural(data.sizes[subgraph], "node"))];
    byId("trail").replaceChildren(...parts);
    this.markFound();
  }

  // ---- search

  search() {
    const input = byId("search");
    let timer = 0;
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => this.find(input.value), 120); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { clearTimeout(timer); this.find(input.value); this.nextFound(event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") { input.value = ""; this.find(""); this.graph.canvas.focus(); }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !(event.target instanceof HTMLInputElement)) { event.preventDefault(); input.focus(); input.select(); }
    });
  }

  /** Nodes whose key, operator or reason contains the text, in any case. */
  find(text) {
    const { data } = this, wanted = text.trim().toLowerCase();
    if (!wanted) this.found = null;
    else {
      const strings = data.strings.map((string) => string.toLowerCase().includes(wanted));
      this.lower ??= data.keys.map((key) => key.toLowerCase());
      const found = [];
      for (let node = 0; node < data.numNodes; node++) {
        if (strings[data.opOf[node]] || strings[data.reasonOf[node]] || this.lower[node].includes(wanted)) found.push(node);
      }
      this.found = found;
    }
    this.at = -1;
    this.filterTables(wanted);
    this.markFound();
  }

  nextFound(step) {
    const rows = this.nodes.rows;
    if (!this.found || !rows.length) return;
    this.at = this.at < 0 ? 0 : (this.at + step + rows.length) % rows.length;
    this.chooseNode(rows[this.at], true);
  }

  filterTables(wanted = byId("search").value.trim().toLowerCase()) {
    const { data } = this;
    const onDevice = (s) => this.device < 0 || data.device(s) === this.device;
    let nodes = this.found ?? Array.from({ length: data.numNodes }, (_, i) => i);
    if (this.only >= 0) nodes = nodes.filter((node) => data.subgraphOf[node] === this.only);
    if (this.device >= 0) nodes = nodes.filter((node) => onDevice(data.subgraphOf[node]));
    const holding = this.found && new Set(this.found.map((node) => data.subgraphOf[node]));
    const subgraphs = Array.from({ length: data.numSubgraphs }, (_, s) => s).filter((s) => onDevice(s) && (!holding || holding.has(s)));
    const values = Array.from(data.valueNames.keys()).filter((v) =>
      (this.device < 0 || onDevice(data.valueSource[v]) || data.readersOf(v).some(onDevice)) && (!wanted || data.valueNames[v].toLowerCase().includes(wanted)));
    this.nodes.filter(Int32Array.from(nodes));
    this.subgraphs.filter(Int32Array.from(subgraphs));
    this.values.filter(Int32Array.from(values));
    const counts = { Nodes: nodes.length, Subgraphs: subgraphs.length, "Boundary values": values.length };
    for (const { title, tab } of this.panes) if (title in counts) tab.querySelector("small").textContent = ` ${counts[title].toLocaleString("en")}`;
    const notes = [];
    if (this.found) notes.push(`${plural(this.found.length, "node")} found in ${plural(holding.size, "subgraph")}`);
    const clear = this.only >= 0 ? make("button", { type: "button", id: "clear", onclick: () => { this.only = -1; this.filterTables(); } }, `Nodes of subgraph ${this.only + 1} ✕`) : null;
    byId("found").replaceChildren(...[notes.join(" "), clear].filter(Boolean));
  }

  markFound() {
    if (!this.found) this.graph.marked = null;
    else {
      const nodes = new Set(this.found), holding = new Set(this.found.map((node) => this.data.subgraphOf[node]));
      const { scene } = this.graph;
      this.graph.marked = scene.node ? (box) => nodes.has(scene.node(box)) : (box) => holding.has(box);
      if (this.timeline) this.timeline.marked = (s) => holding.has(s);
    }
    if (this.timeline && !this.found) this.timeline.marked = null;
    this.redraw();
  }

  // ---- the page

  splitter() {
    const handle = byId("splitter"), tables = byId("tables");
    const set = (share) => {
      const percent = Math.min(85, Math.max(10, share));
      tables.style.height = `${percent}%`;
      handle.setAttribute("aria-valuenow", String(Math.round(percent)));
    };
    set(36);
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      handle.onpointermove = (move) => set(100 * (1 - move.clientY / innerHeight));
    });
    handle.addEventListener("pointerup", () => { handle.onpointermove = null; });
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 5, ArrowDown: -5 }[event.key];
      if (step) { set(parseFloat(tables.style.height) + step); event.preventDefault(); }
    });
  }

  help() {
    const keys = [
      ["/", "search; Enter: next, Shift Enter: the one before"], ["Tab", "from part to part"],
      ["arrows", "in the graph: along edges and beside; in tables: rows; in the timeline: subgraphs"],
      ["Enter", "draw the nodes of a subgraph; choose a row"], ["Escape", "back"], ["+ − 0", "zoom in, out, fit"],
      ["wheel, drag", "zoom, move"],
    ];
    const box = byId("keys"), button = byId("help");
    box.append(make("dl", {}, ...keys.flatMap(([key, what]) => [make("dt", {}, key), make("dd", {}, what)])));
    const toggle = (on) => { box.hidden = !on; button.setAttribute("aria-expanded", String(on)); };
    button.onclick = () => toggle(box.hidden);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") toggle(false);
      if (event.key === "?" && !(event.target instanceof HTMLInputElement)) toggle(box.hidden);
    });
  }
}

readData()
  .then((data) => { globalThis.heteroReport = new Report(data); })
  .catch((error) => { byId("notices").hidden = false; byId("notices").append(make("p", {}, `The report cannot be shown: ${error.message}`)); throw error; });
