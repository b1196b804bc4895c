// Puts the report together: what is chosen, searched and shown, and who is told of it.

class Report {
  constructor(data) {
    this.data = data;
    this.path = []; // of the scene that is drawn
    this.subgraph = -1;
    this.node = -1;
    this.device = -1;
    this.only = null; // {title, nodes}: what the table of nodes is limited to
    this.found = null;
    this.header();
    this.details = new Details(data, {
      subgraph: (s) => this.chooseSubgraph(s, true),
      node: (node) => this.chooseNode(node, true),
      open: (path) => this.open(path),
      path: () => this.path,
      list: (title, nodes) => this.listNodes(title, nodes),
    });
    this.graph = new GraphView(data, {
      at: (box, reveal) => this.chooseBox(box, reveal),
      open: (box) => { const { path } = this.graph.scene.box(box); if (path) this.open(path); },
      back: () => this.back(),
    });
    this.tabs();
    byId("by-subgraph").onclick = () => this.open([]);
    byId("by-name").onclick = () => this.open(["names"]);
    byId("views").hidden = !data.hasEdges || !data.numNodes;
    this.search();
    this.splitter();
    this.help();
    this.graph.view.fitCanvas();
    // The nodes of a single subgraph say more than its box, and scopes more than thousands of subgraphs.
    this.home = !data.hasEdges || !data.numNodes ? [] : data.numSubgraphs === 1 ? [0] : data.numSubgraphs > MOST_BOXES ? ["names"] : [];
    this.restore();
    addEventListener("popstate", () => this.restore());
  }

  /** The subgraph whose nodes are drawn, -1 if there is no such. */
  get drawn() { return typeof this.path[0] === "number" ? this.path[0] : -1; }

  header() {
    const { data } = this;
    byId("model").textContent = data.model || "model";
    byId("model").title = data.model;
    const parts = [plural(data.numSubgraphs, "subgraph"), plural(data.numNodes, "node"), plural(data.valueNames.length, "boundary value")];
    if (data.run) parts.push(`${data.run.predicted ? "predicted" : "measured"}: ${plural(data.requests, "inference")} in ${timeText(data.runLength)}`);
    byId("summary").textContent = parts.join(" · ");
    const used = data.devices.map(() => 0), count = data.devices.map(() => 0);
    data.sizes.forEach((size, s) => { used[data.device(s)] += size; count[data.device(s)]++; });
    const times = data.devices.map(() => 0);
    if (data.run) data.timeOf.forEach((time, s) => { times[data.device(s)] += Math.max(0, time); });
    data.deviceTime = (device) => times[device];
    data.deviceUse = (device) => [used[device], count[device]];
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
    const longest = Math.max(0, ...data.devices.map((device) => device.length));
    const deviceWidth = Math.max(90, Math.min(240, 45 + 9 * longest));  // px: swatch, padding, and letters of up to 9 px
    const inRun = (...columns) => (data.run ? columns : []);
    const timed = (column) => (row) => (column[row] < 0 ? "" : timeText(column[row]));
    this.nodes = new Table("Nodes", [
      { title: "Node", name: true, width: "minmax(260px, 3fr)", text: (n) => data.keys[n] },
      { title: "Operator", width: "minmax(110px, .7fr)", text: (n) => data.op(n) },
      { title: "Device", width: `minmax(${deviceWidth}px, .5fr)`, text: (n) => data.deviceName(data.subgraphOf[n]), swatch: swatch((n) => data.subgraphOf[n]) },
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
      { title: "Device", width: `minmax(${deviceWidth}px, .6fr)`, text: (s) => data.deviceName(s), swatch: swatch((s) => s) },
      { title: "Nodes", width: "80px", number: true, text: (s) => data.sizes[s].toLocaleString("en"), key: (s) => data.sizes[s] },
      ...inRun({ title: "Time", width: "90px", number: true, text: timed(data.timeOf ?? []), key: (s) => data.timeOf[s] }),
      { title: "Reads", width: "120px", number: true, text: (s) => data.sizeOf(data.read(s)), key: (s) => data.bytesOf(data.read(s)) },
      { title: "Gives", width: "120px", number: true, text: (s) => data.sizeOf(data.made(s)), key: (s) => data.bytesOf(data.made(s)) },
      { title: "First node", name: true, width: "minmax(200px, 1fr)", text: (s) => data.keys[data.firstNode[s]] ?? "" },
      { title: "Last node", name: true, width: "minmax(200px, 1fr)", text: (s) => data.keys[data.firstNode[s + 1] - 1] ?? "" },
    ], data.numSubgraphs, (s) => this.chooseSubgraph(s, true));
    this.values = new Table("Boundary values", [
      { title: "Value", name: true, width: "minmax(220px, 1.5fr)", text: (v) => data.valueNames[v] },
      { title: "Type", width: "minmax(150px, 1fr)", text: (v) => data.type(v) },
      { title: "Bytes", width: "100px", number: true, text: (v) => bytesText(data.valueBytes[v]), key: (v) => data.valueBytes[v] },
      { title: "From", width: `minmax(${deviceWidth + 40}px, .5fr)`, text: (v) => `${data.valueSource[v] + 1} ${data.deviceName(data.valueSource[v])}`, key: (v) => data.valueSource[v], swatch: swatch((v) => data.valueSource[v]) },
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
    this.fitTables?.();
  }

  listNodes(title, nodes) {
    this.only = { title, nodes: new Set(nodes) };
    this.filterTables();
    this.showPane("Nodes");
    this.nodes.scroller.focus();
  }

  // ---- what is chosen

  chooseBox(box, reveal) {
    if (box < 0) { this.chooseNothing(); return; }
    const chosen = this.graph.scene.box(box);
    if (chosen.kind === "node") this.chooseNode(chosen.node, reveal, box);
    else if (chosen.kind === "subgraph") this.chooseSubgraph(chosen.subgraph, reveal, box);
    else if (chosen.kind === "group") {
      this.choose(-1, -1, box, reveal);
      this.details.group(this.graph.scene.label(chosen.group, 0), chosen);
    }
  }

  /** Marks a subgraph, a node and a box wherever they are; -1 for none. */
  choose(subgraph, node, box, reveal = false) {
    this.subgraph = subgraph;
    this.node = node;
    this.graph.setChosen(box, reveal);
    this.timeline?.setChosen(subgraph);
    this.subgraphs.select(subgraph);
    this.nodes.select(node);
    this.saveLink();
  }

  chooseNothing() {
    this.choose(-1, -1, -1);
    const { parent } = this.graph.scene, box = parent?.inside[this.path.at(-1)];
    if (box) this.details.group(parent.label(box.group, 0), box);
    else if (this.drawn >= 0 && this.data.numSubgraphs > 1) this.details.subgraph(this.drawn);
    else this.details.plan();
  }

  chooseSubgraph(s, reveal = false, box = -1) {
    if (box < 0 && this.path.length && s !== this.drawn) this.draw([]);
    this.choose(s, -1, this.path.length ? box : s, reveal);
    this.details.subgraph(s);
  }

  /** box: where the node stands, if it is a neighbor of what is drawn. */
  chooseNode(node, reveal = false, box = -1) {
    const s = this.data.subgraphOf[node];
    if (box < 0 && this.graph.scene.place(node) < 0) this.draw(this.drawn < 0 ? ["names"] : [s]);
    this.choose(s, node, box < 0 ? this.graph.scene.place(node) : box, reveal);
    this.details.node(node);
  }

  chooseDevice(device) {
    this.device = device;
    [...byId("legend").children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === device)));
    this.graph.device = device;
    this.filterTables();
    this.redraw();
    this.saveLink();
  }

  /** Draws the scene at a path, or a subgraph's nodes, in place of the one that is drawn. */
  open(place) {
    const path = Array.isArray(place) ? place : [place];
    if (!this.data.hasEdges && path.length) {
      this.listNodes(`subgraph ${path[0] + 1}`, this.data.nodesOf(path[0]));
      say("The plan was loaded without its model: nodes are listed, not drawn.");
      return;
    }
    const { node } = this;
    this.draw(path, true);
    if (node >= 0 && this.graph.scene.place(node) >= 0) this.chooseNode(node, true);
    else this.chooseNothing();
    this.graph.canvas.focus();
  }

  back() {
    const { path } = this;
    if (!path.length || path[0] === "names" && path.length === 1) { this.chooseNothing(); return; }
    this.draw(path.slice(0, -1), true);
    if (path.length === 1) this.chooseSubgraph(path[0]);
    else this.chooseBox(this.graph.scene.firstInside + path.at(-1), false);
    this.graph.canvas.focus();
  }

  /** isStep: whether the browser's Back leads back from it. */
  draw(path, isStep = false) {
    if (isStep) this.saveLink({ view: path });
    this.path = path;
    this.graph.show(this.graph.sceneAt(path));
    const { data } = this, byName = path[0] === "names";
    const step = (length) => {
      if (!length) return plural(data.numSubgraphs, "subgraph");
      if (length === 1) return byName ? plural(data.numNodes, "node") : `Subgraph ${path[0] + 1} on ${data.deviceName(path[0])}`;
      const parent = this.graph.sceneAt(path.slice(0, length - 1));
      return elided(parent.label(parent.inside[path[length - 1]].group), 60);
    };
    const parts = [];
    for (let length = byName ? 1 : 0; length <= path.length; length++) {
      const text = make("span", { class: "name" }, step(length));
      if (length === path.length) parts.push(make("strong", { "aria-current": "true" }, text));
      else parts.push(make("button", { type: "button", id: length === path.length - 1 ? "back" : null, onclick: () => (length === path.length - 1 ? this.back() : this.open(path.slice(0, length))) }, text), make("span", { class: "faint", "aria-hidden": "true" }, "›"));
    }
    byId("trail").replaceChildren(...parts);
    byId("trail").scrollLeft = byId("trail").scrollWidth; // the last step is what is drawn
    if (isStep) say(`Graph of: ${step(path.length)}`);
    byId("by-subgraph").setAttribute("aria-pressed", String(!byName));
    byId("by-name").setAttribute("aria-pressed", String(byName));
    this.markFound();
  }

  // ---- the link to what is chosen

  /** Writes into the address what is seen, so that its link shows the same. */
  saveLink({ view } = {}) {
    if (this.isRestoring) return;
    const { data, path, node, subgraph, device } = this, link = new URLSearchParams();
    if (String(view ?? path) !== String(this.home)) link.set("view", (view ?? path).join("."));
    if (view) { /* nothing is chosen yet */ } else if (node >= 0) link.set("node", data.keys[node]);
    else if (subgraph >= 0) link.set("subgraph", subgraph + 1);
    if (device >= 0) link.set("device", data.devices[device]);
    const text = byId("search").value.trim();
    if (text) link.set("find", text);
    try {
      history[view ? "pushState" : "replaceState"](null, "", `#${link}`);
    } catch { /* A page in a frame of another page, such as a notebook, may not have an address of its own. */ }
  }

  restore() {
    const link = new URLSearchParams(location.hash.slice(1)), { data } = this;
    const wanted = link.get("view")?.split(".").filter(Boolean).map((step) => (step === "names" ? step : Number(step))) ?? this.home;
    this.isRestoring = true;
    this.draw(this.graph.sceneAt(wanted) ? wanted : this.home);
    byId("search").value = link.get("find") ?? "";
    this.find(byId("search").value);
    this.chooseDevice(data.devices.indexOf(link.get("device")));
    const node = link.has("node") ? data.keys.indexOf(link.get("node")) : -1, subgraph = Number(link.get("subgraph") ?? 0) - 1;
    if (node >= 0) this.chooseNode(node, true);
    else if (subgraph in data.sizes) this.chooseSubgraph(subgraph, true);
    else this.chooseNothing();
    this.isRestoring = false;
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
      const ops = data.ops.map((op) => op.name.toLowerCase().includes(wanted));
      this.lower ??= data.keys.map((key) => key.toLowerCase());
      const found = [];
      for (let node = 0; node < data.numNodes; node++) {
        if (ops[data.opOf[node]] || strings[data.reasonOf[node]] || this.lower[node].includes(wanted)) found.push(node);
      }
      this.found = found;
    }
    this.at = -1;
    this.filterTables(wanted);
    this.markFound();
    this.saveLink();
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
    if (this.only) nodes = nodes.filter((node) => this.only.nodes.has(node));
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
    const clear = this.only && make("button", { type: "button", id: "clear", onclick: () => { this.only = null; this.filterTables(); } }, `Nodes of ${elided(this.only.title, 40)} ✕`);
    byId("found").replaceChildren(...[notes.join(" "), clear].filter(Boolean));
  }

  markFound() {
    this.graph.marked = this.found && new Set(this.found.map((node) => this.graph.scene.place(node)));
    if (this.timeline) this.timeline.marked = this.found && new Set(this.found.map((node) => this.data.togetherWith(this.data.subgraphOf[node])[0]));
    this.redraw();
  }

  // ---- the page

  splitter() {
    const handle = byId("splitter"), tables = byId("tables"), { data } = this;
    const set = (share) => {
      const percent = Math.min(85, Math.max(10, share));
      tables.style.height = `${percent}%`;
      handle.setAttribute("aria-valuenow", String(Math.round(percent)));
    };
    // As high as what is shown needs, at most a good third of the window, until someone moves it.
    let isMoved = false;
    this.fitTables = () => {
      const { title } = this.panes.find(({ pane }) => !pane.hidden);
      const rows = { Nodes: data.numNodes, Subgraphs: data.numSubgraphs, "Boundary values": data.valueNames.length }[title];
      const needed = 40 + (rows === undefined ? AXIS + 80 * data.run.lanes.length : 30 + ROW * Math.max(rows, 2));
      if (!isMoved) set(Math.min(36, (100 * needed) / innerHeight));
    };
    this.fitTables();
    addEventListener("resize", this.fitTables);
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      isMoved = true;
      handle.onpointermove = (move) => set(100 * (1 - move.clientY / innerHeight));
    });
    handle.addEventListener("pointerup", () => { handle.onpointermove = null; });
    handle.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 5, ArrowDown: -5 }[event.key];
      if (step) { isMoved = true; set(parseFloat(tables.style.height) + step); event.preventDefault(); }
    });
  }

  help() {
    const keys = [
      ["/", "search; Enter: next, Shift Enter: the one before"], ["Tab", "from part to part"],
      ["arrows", "in the graph: along edges and beside; in tables: rows; in the timeline: subgraphs"],
      ["Enter, Space", "draw the nodes of a subgraph or a scope; choose a row"], ["Escape", "hide the tip; back"], ["+ − 0", "zoom in, out, fit"],
      ["wheel, pinch, drag", "zoom, zoom, move"],
    ];
    const box = byId("keys"), button = byId("help");
    box.append(make("dl", {}, ...keys.flatMap(([key, what]) => [make("dt", {}, key), make("dd", {}, what)])));
    const toggle = (on) => {
      const back = !on && box.contains(document.activeElement);
      box.hidden = !on;
      button.setAttribute("aria-expanded", String(on));
      if (on) box.focus();
      else if (back) button.focus();
    };
    document.addEventListener("pointerdown", ({ target }) => { // a phone has no Escape key
      if (!box.hidden && !box.contains(target) && !button.contains(target)) toggle(false);
    });
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
