// The panel that tells all about what is chosen: the plan, a device, a subgraph or a node.

const MOST_LISTED = 40;

class Details {
  constructor(data, go) {
    this.data = data;
    this.go = go; // {subgraph(s), node(n), open(s)}
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
    return make("div", {}, make("h3", {}, `${title} (${entries.length.toLocaleString("en")})`), make("ul", {}, ...items));
  }

  link(text, act) { return make("button", { type: "button", class: "link", onclick: act }, ...breakable(text)); }
  subgraphLink(s) { return this.link(`subgraph ${s + 1} (${this.data.deviceName(s)})`, () => this.go.subgraph(s)); }

  plan() {
    const { data } = this;
    const devices = data.devices.map((device, i) => {
      const [nodes, subgraphs, weights, received, sent, unknown] = data.totals[i] ?? [0, 0, 0, 0, 0, 0];
      const facts = [["Nodes", nodes.toLocaleString("en")], ["Subgraphs", subgraphs.toLocaleString("en")], ["Weights", bytesText(weights)], ["Receives", bytesText(received)], ["Sends", bytesText(sent)]];
      if (unknown) facts.push(["Size unknown", plural(unknown, "value")]);
      if (data.run) facts.push(["Time", timeText(data.deviceTime(i))]);
      return make("div", {}, make("h3", {}, device), this.facts(facts));
    });
    const longest = data.run ? [...data.timeOf.keys()].sort((a, b) => data.timeOf[b] - data.timeOf[a]).slice(0, 8) : [];
    this.show(
      make("h2", {}, make("span", { class: "name" }, data.model || "model")),
      this.facts([
        ["Subgraphs", data.numSubgraphs.toLocaleString("en")],
        ["Nodes", data.numNodes.toLocaleString("en")],
        ["Boundary values", `${data.valueNames.length.toLocaleString("en")}, ${bytesText(data.bytesOf(data.valueNames.keys()))}`],
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

  subgraph(s) {
    const { data } = this, begin = data.firstNode[s], end = data.firstNode[s + 1];
    const made = Array.from(data.made(s)), read = data.read(s);
    const [cpu, counted] = data.run ? data.sumOver(s, data.cpu) : [0, 0];
    const moved = data.run && data.ranOn[s] !== data.deviceOf[s] ? `planned on ${data.devices[data.deviceOf[s]]}` : "";
    const value = (v, ends) => [
      make("span", { class: "name" }, ...breakable(elided(data.valueNames[v], 200))), make("br"),
      make("span", { class: "faint" }, `${data.type(v)}, ${bytesText(data.valueBytes[v])} `), ...ends,
    ];
    const slowest = data.run ? this.slowest(begin, end) : [];
    this.show(
      make("h2", {}, make("i", { class: "swatch", color: data.color(s) }), `Subgraph ${s + 1} on ${data.deviceName(s)}`),
      this.facts([
        ["Nodes", data.sizes[s].toLocaleString("en")],
        ["Time", data.run ? timeText(data.timeOf[s]) : ""],
        ["CPU time", counted ? timeText(cpu) : ""],
        ["Device", moved],
        ["Reads", `${plural(read.length, "value")}, ${bytesText(data.bytesOf(read))}`],
        ["Gives", `${plural(made.length, "value")}, ${bytesText(data.bytesOf(made))}`],
        ["First node", elided(data.keys[begin] ?? "", 300)],
        ["Last node", elided(data.keys[end - 1] ?? "", 300)],
      ]),
      make("p", { class: "actions" },
        make("button", { type: "button", id: "open", onclick: () => this.go.open(s) }, "Draw its nodes"),
        make("button", { type: "button", id: "list", onclick: () => this.go.list(s) }, "List its nodes")),
      this.list("Why here", data.reasons(begin, end), ([reason, count]) => [make("span", { class: "name" }, elided(reason, 400)), make("span", { class: "faint" }, ` ${plural(count, "node")}`)]),
      this.list("Slowest nodes", slowest, (node) => [this.nodeLink(node), ` ${timeText(data.real[node])}`, this.share(data.real[node], data.timeOf[s])]),
      this.list("Reads", read, (v) => value(v, ["from ", this.subgraphLink(data.valueSource[v])])),
      this.list("Gives", made, (v) => value(v, ["to ", ...data.readersOf(v).slice(0, 8).flatMap((to, i) => [i ? ", " : "", this.subgraphLink(to)])])),
      this.list("Operators", data.operators(begin, end), ([op, count]) => `${op} × ${count.toLocaleString("en")}`),
    );
  }

  slowest(begin, end) {
    const nodes = [];
    for (let node = begin; node < end; node++) if (this.data.real[node] > 0) nodes.push(node);
    return nodes.sort((a, b) => this.data.real[b] - this.data.real[a]).slice(0, 6);
  }

  nodeLink(node) { return this.link(`${this.data.op(node)} ${elided(this.data.keys[node], 120)}`, () => this.go.node(node)); }

  node(node) {
    const { data } = this, s = data.subgraphOf[node];
    const near = (other) => [this.nodeLink(other), data.subgraphOf[other] === s ? "" : make("span", { class: "faint" }, ` subgraph ${data.subgraphOf[other] + 1}, ${data.deviceName(data.subgraphOf[other])}`)];
    this.show(
      make("h2", {}, make("i", { class: "swatch", color: data.color(s) }), make("span", { class: "name" }, ...breakable(elided(data.keys[node], 500)))),
      this.facts([
        ["Operator", data.op(node)],
        ["Device", data.deviceName(s)],
        ["Why", data.reason(node)],
        ["Time", data.run ? timeText(data.real[node]) : ""],
        ["CPU time", data.run ? timeText(data.cpu[node]) : ""],
        ["Ran as", data.run && data.how[node] >= 0 ? data.strings[data.how[node]] : ""],
      ]),
      make("p", { class: "actions" }, this.subgraphLink(s)),
      this.list("Reads from", data.makersOfNode(node), near),
      this.list("Read by", Array.from(data.readersOfNode(node)), near),
    );
  }
}
