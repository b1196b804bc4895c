// The panel that tells all about what is chosen: the plan, a device, a subgraph or a node.

const MOST_LISTED = 40;

class Details {
  constructor(data, go) {
    this.data = data;
    this.go = go; // {subgraph(s), node(n), open(path), list(title, nodes), path()}
    this.element = byId("details");
  }

  show(...children) {
    this.element.replaceChildren(...children.filter(Boolean));
    this.element.scrollTop = 0;
  }

  /** A definition list of the pairs that have a value. */
  facts(pairs) {
    const list = make("dl");
    for (const [term, value] of pairs) {
      if (value !== "" && value !== null && value !== undefined) list.append(make("dt", {}, term), make("dd", { class: "name" }, ...breakable(value)));
    }
    return list;
  }

  /** A headline and a list of at most so many entries; nothing if there is none. */
  list(title, entries, draw) {
    if (!entries.length) return null;
    const items = entries.slice(0, MOST_LISTED).map((entry) => make("li", {}, ...[draw(entry)].flat()));
    if (entries.length > MOST_LISTED) items.push(make("li", { class: "faint" }, `and ${(entries.length - MOST_LISTED).toLocaleString("en")} more`));
    return make("div", {}, make("h3", {}, `${title} (${entries.length.toLocaleString("en")})`), make("ul", { "aria-label": title }, ...items));
  }

  link(text, act) { return make("button", { type: "button", class: "link", onclick: act }, ...breakable(text)); }
  subgraphLink(s) { return this.link(`subgraph ${s + 1} (${this.data.deviceName(s)})`, () => this.go.subgraph(s)); }

  plan() {
    const { data } = this;
    const devices = data.devices.map((device, i) => {
      const [planned, plannedSubgraphs, weights, received, sent, unknown] = data.totals[i] ?? [0, 0, 0, 0, 0, 0];
      const [nodes, subgraphs] = data.deviceUse(i), facts = [["Nodes", nodes.toLocaleString("en")], ["Subgraphs", subgraphs.toLocaleString("en")]];
      // Subgraphs that failed on their device ran on another one; the sizes are those of the plan.
      if (nodes !== planned) facts.push(["Planned", `${plural(planned, "node")}, ${plural(plannedSubgraphs, "subgraph")}`]);
      facts.push(["Weights", bytesText(weights)], ["Receives", bytesText(received)], ["Sends", bytesText(sent)]);
      if (unknown) facts.push(["Size unknown", plural(unknown, "value")]);
      if (data.run) facts.push(["Time", timeText(data.deviceTime(i))]);
      return make("div", {}, make("h3", {}, device), this.facts(facts));
    });
    const longest = data.run ? [...data.timeOf.keys()].filter((s) => data.timeOf[s] >= 0).sort((a, b) => data.timeOf[b] - data.timeOf[a]).slice(0, 8) : [];
    this.show(
      make("h2", {}, make("span", { class: "name" }, data.model || "model")),
      this.facts([
        ["Subgraphs", data.numSubgraphs.toLocaleString("en")],
        ["Nodes", data.numNodes.toLocaleString("en")],
        ["Boundary values", `${data.valueNames.length.toLocaleString("en")}, ${data.sizeOf(data.valueNames.keys())}`],
        ["Unknown sizes", data.unknownSizes],
        ["Policy", data.policy],
        [data.run?.predicted ? "Predicted" : "Run", data.run ? timeText(data.runLength) : ""],
        ["Made by", data.generator],
      ]),
      this.list("Longest subgraphs", longest, (s) => [this.subgraphLink(s), ` ${timeText(data.timeOf[s])}`, this.share(data.timeOf[s], data.runLength)]),
      ...devices,
    );
  }

  share(part, whole) {
    const bar = make("span", { class: "share" });
    bar.style.width = `${Math.min(100, (100 * part) / whole)}%`;
    return bar;
  }

  /** What nodes have in common: their reasons, the slowest of them, their operators. */
  about(nodes, total) {
    const { data } = this;
    const slowest = !data.run ? [] : Array.from(nodes).filter((node) => data.real[node] > 0).sort((a, b) => data.real[b] - data.real[a]).slice(0, 6);
    return [
      this.list("Why here", data.reasons(nodes), ([reason, count]) => [make("span", { class: "name" }, elided(reason, 400)), make("span", { class: "faint" }, ` ${plural(count, "node")}`)]),
      this.list("Slowest nodes", slowest, (node) => [this.nodeLink(node), ` ${timeText(data.real[node])}`, this.share(data.real[node], total)]),
      this.list("Operators", data.operators(nodes), ([op, count]) => [make("span", { class: "name" }, op), ` × ${count.toLocaleString("en")}`]),
    ];
  }

  actions(path, title, nodes) {
    return make("p", { class: "actions" },
      this.data.hasEdges && String(path) !== String(this.go.path()) ? make("button", { type: "button", id: "open", onclick: () => this.go.open(path) }, "Draw its nodes") : null,
      make("button", { type: "button", id: "list", onclick: () => this.go.list(title, nodes) }, "List its nodes"));
  }

  subgraph(s) {
    const { data } = this, nodes = data.nodesOf(s);
    const made = Array.from(data.made(s)), read = data.read(s);
    const [cpu, counted] = data.run ? data.sumOver(nodes, data.cpu) : [0, 0];
    const moved = data.run && data.ranOn[s] !== data.deviceOf[s] ? `planned on ${data.devices[data.deviceOf[s]]}` : "";
    const value = (v, ends) => [
      make("span", { class: "name" }, ...breakable(elided(data.valueNames[v], 200))), make("br"),
      make("span", { class: "faint" }, `${data.type(v)}, ${bytesText(data.valueBytes[v])} `), ...ends,
    ];
    const [why, slowest, operators] = this.about(nodes, data.timeOf?.[s]);
    this.show(
      make("h2", {}, make("i", { class: "swatch", color: data.color(s) }), `Subgraph ${s + 1} on ${data.deviceName(s)}`),
      this.facts([
        ["Nodes", nodes.length.toLocaleString("en")],
        ["Stage", data.stages ? String(data.stages.indexOf(data.togetherWith(s)) + 1) : ""],
        ["Time", data.run ? timeText(data.timeOf[s]) : ""],
        ["CPU time", counted ? timeText(cpu) : ""],
        ["Device", moved],
        ["Reads", `${plural(read.length, "value")}, ${data.sizeOf(read)}`],
        ["Gives", `${plural(made.length, "value")}, ${data.sizeOf(made)}`],
        ["First node", elided(data.keys[nodes[0]] ?? "", 300)],
        ["Last node", elided(data.keys[nodes.at(-1)] ?? "", 300)],
      ]),
      this.actions([s], `subgraph ${s + 1}`, nodes),
      why,
      slowest,
      this.list("Reads", read, (v) => value(v, ["from ", this.subgraphLink(data.valueSource[v])])),
      this.list("Gives", made, (v) => value(v, ["to ", ...data.readersOf(v).slice(0, 8).flatMap((to, i) => [i ? ", " : "", this.subgraphLink(to)])])),
      operators,
    );
  }

  /** Some nodes that share a scope. */
  group(title, { nodes, devices, time, path }) {
    const { data } = this, subgraphs = new Set(Array.from(nodes, (node) => data.subgraphOf[node]));
    this.show(
      make("h2", {}, make("span", { class: "name" }, ...breakable(elided(title, 300)))),
      this.facts([
        ["Nodes", nodes.length.toLocaleString("en")],
        ["Subgraphs", subgraphs.size.toLocaleString("en")],
        ...devices.map(([device, count]) => [data.devices[device], plural(count, "node")]),
        ["Time", time > 0 ? timeText(time) : ""],
      ]),
      this.actions(path, title, nodes),
      ...this.about(nodes, time),
    );
  }

  nodeLink(node) { return this.link(`${this.data.op(node)} ${elided(this.data.keys[node], 120)}`, () => this.go.node(node)); }

  node(node) {
    const { data } = this, s = data.subgraphOf[node], op = data.ops[data.opOf[node]];
    this.show(
      make("h2", {}, make("i", { class: "swatch", color: data.color(s) }), make("span", { class: "name" }, ...breakable(elided(data.keys[node], 500)))),
      this.facts([
        ["Operator", op?.version ? `${op.name} (${op.domain || "ai.onnx"} ${op.version})` : data.op(node)],
        ["Device", data.deviceName(s)],
        ["Why", data.reason(node)],
        ["Time", data.run ? timeText(data.real[node]) : ""],
        ["CPU time", data.run ? timeText(data.cpu[node]) : ""],
        ["Ran as", data.run && data.how[node] >= 0 ? data.strings[data.how[node]] : ""],
      ]),
      make("p", { class: "actions" }, this.subgraphLink(s)),
      ...(data.hasEdges ? this.model(node, op) : []),
    );
  }

  /** The attributes of a node, and the tensors that it reads and writes. */
  model(node, op) {
    const { data } = this, attributes = data.attributes(node), pairs = [];
    for (let i = 0; i < attributes.length; i += 2) pairs.push([attributes[i], attributes[i + 1] || '""']);
    const place = (other) => {
      const s = data.subgraphOf[other];
      return s === data.subgraphOf[node] ? "" : make("span", { class: "faint" }, ` in subgraph ${s + 1} on ${data.deviceName(s)}`);
    };
    const tensor = (formal, at, ends) => {
      const [type, size] = data.tensorType(at), contents = data.contents.get(at);
      return [
        formal ? make("span", { class: "faint" }, `${formal}: `) : "",
        make("span", { class: "name" }, ...breakable(elided(data.tensorName(at), 200))), make("br"),
        make("span", { class: "name" }, type + (contents ? ` = ${contents}` : "")), make("span", { class: "faint" }, size < 0 ? "" : `, ${bytesText(size)}`), ...ends,
      ];
    };
    const rows = (tensors, formal) => Array.from(tensors, (at, i) => [at, formal?.[Math.min(i, formal.length - 1)]]).filter(([at]) => at >= 0);
    const origin = (at) => {
      if (data.contents.has(at)) return [make("br"), make("span", { class: "faint" }, "constant")];
      const maker = data.makerOf[at];
      return [make("br"), ...(maker < 0 ? [make("span", { class: "faint" }, "input of the model")] : ["from ", this.nodeLink(maker), place(maker)])];
    };
    const readers = (at) => {
      const found = data.readersOfNode(node).filter((reader) => data.reads(reader).includes(at) || data.captures(reader).includes(at));
      const links = found.slice(0, 8).flatMap((reader) => [make("br"), "to ", this.nodeLink(reader), place(reader)]);
      if (found.length > 8) links.push(make("br"), make("span", { class: "faint" }, `and ${plural(found.length - 8, "node")} more`));
      if (data.outputs.has(at)) links.push(make("br"), make("span", { class: "faint" }, "output of the model"));
      return links;
    };
    return [
      pairs.length ? make("h3", {}, `Attributes (${pairs.length})`) : null,
      pairs.length ? this.facts(pairs) : null,
      this.list("Inputs", rows(data.reads(node), op?.reads), ([at, formal]) => tensor(formal, at, origin(at))),
      this.list("Captured by nested graphs", rows(data.captures(node)), ([at]) => tensor("", at, origin(at))),
      this.list("Outputs", rows(data.writes(node), op?.writes), ([at, formal]) => tensor(formal, at, readers(at))),
    ];
  }
}
