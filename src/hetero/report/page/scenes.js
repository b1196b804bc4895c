// What the graph draws: boxes with two lines of text, the edges between them, and how to say what they are.

const MOST_NEAR = 40; // neighbors that are drawn before and after the nodes of a scene

/** The subgraphs and what passes between them. */
class SubgraphScene {
  constructor(data) {
    this.data = data;
    this.boxWidth = 178;
    this.boxHeight = 46;
    this.count = data.numSubgraphs;
    this.edges = data.links;
    this.longest = data.run ? data.timeOf.reduce((most, time) => Math.max(most, time), 1) : 0;
    const most = data.links.reduce((largest, link) => Math.max(largest, data.bytesOf(link.values)), 1);
    this.weight = (link) => 1 + 2.5 * (Math.log1p(data.bytesOf(link.values)) / Math.log1p(most));
  }
  place(node) { return this.data.subgraphOf[node]; }
  box(s) { return { kind: "subgraph", subgraph: s, path: [s] }; }
  color(s) { return this.data.color(s); }
  isOn(s, device) { return this.data.device(s) === device; }
  lines(s) {
    const { data } = this;
    const time = data.run ? timeText(data.timeOf[s]) : "";
    return [`${s + 1}  ${data.deviceName(s)}`, [plural(data.sizes[s], "node"), time].filter(Boolean).join(" · ")];
  }
  short(s) { return String(s + 1); }
  bars(s) { return this.data.run ? [[this.color(s), Math.max(0, this.data.timeOf[s]) / this.longest]] : []; }
  edgeLabel(link) {
    const size = this.data.bytesOf(link.values);
    return size || link.values.every((v) => this.data.valueBytes[v] === 0) ? bytesText(size) : plural(link.values.length, "value");
  }
  tip(s) {
    const { data } = this, nodes = data.nodesOf(s);
    return [
      `Subgraph ${s + 1} on ${data.deviceName(s)}`,
      plural(nodes.length, "node") + (data.run && data.timeOf[s] >= 0 ? `, ${timeText(data.timeOf[s])}` : ""),
      data.operators(nodes).slice(0, 4).map(([op, count]) => `${op} ${count.toLocaleString("en")}`).join(", "),
      nodes.length ? elided(data.keys[nodes[0]], 90) : "",
    ];
  }
  edgeTip(link) {
    const { data } = this;
    const values = link.values.slice(0, 5).map((v) => `${elided(data.valueNames[v], 60)}: ${data.type(v)}, ${bytesText(data.valueBytes[v])}`);
    if (link.values.length > 5) values.push(`and ${link.values.length - 5} more`);
    return [`${plural(link.values.length, "value")} from subgraph ${link.from + 1} to ${link.to + 1}`, ...values];
  }
}

/**
 * Some nodes, or their scopes if they are many; before and after them, what they read from and what reads them.
 *
 * path: how to come here; parent: the scene that has these nodes as one box, null at the top.
 */
class NodeScene {
  constructor(data, nodes, path, parent) {
    Object.assign(this, { data, nodes, path, parent, boxWidth: 164, boxHeight: 40 });
    const groups = nodes.length <= MOST_BOXES ? Array.from(nodes, (node) => ({ nodes: [node] })) : grouping(data, nodes);
    // In the mean running order, so that few edges between groups lead back.
    const mean = (group) => group.nodes.reduce((sum, node) => sum + node, 0) / group.nodes.length;
    const ordered = groups.map((group) => [mean(group), group]).sort((a, b) => a[0] - b[0]);
    this.inside = ordered.map(([, group], i) => this.boxOf(group, [...path, i]));
    const boxOf = new Map(this.inside.flatMap((box) => Array.from(box.nodes, (node) => [node, box])));
    const before = new Map(), after = new Map(), links = new Map(this.inside.map((box) => [box, new Set()]));
    for (const node of nodes) {
      const own = boxOf.get(node);
      for (const maker of data.makersOfNode(node)) {
        const from = boxOf.get(maker) ?? this.near(before, maker);
        if (!links.has(from)) links.set(from, new Set());
        if (from !== own) links.get(from).add(own);
      }
      for (const reader of data.readersOfNode(node)) if (!boxOf.has(reader)) links.get(own).add(this.near(after, reader));
    }
    const inOrder = (side) => [...side.values()].sort((a, b) => a.order - b.order);
    this.boxes = [...inOrder(before), ...this.inside, ...inOrder(after)];
    this.count = this.boxes.length;
    this.firstInside = before.size;
    const index = new Map(this.boxes.map((box, i) => [box, i]));
    this.placeOf = new Map(Array.from(boxOf, ([node, box]) => [node, index.get(box)]));
    this.edges = [...links].flatMap(([one, others]) => Array.from(others, (other) => {
      const from = index.get(one), to = index.get(other);
      return from < to ? { from, to } : { from: to, to: from, back: true };
    }));
    const scopes = groups.flatMap((group) => [group, group.first, group.last]).map((group) => group?.scope).filter(Boolean);
    let shared = 0;
    while (scopes.length && scopes.every((scope) => scope.length > shared + 1 && scope[shared] === scopes[0][shared])) shared++;
    this.shared = shared;
    this.longest = this.inside.reduce((most, box) => Math.max(most, box.time), 1);
    this.weight = () => 1.2;
    // Where a graph is small on the screen, ranges of numbers with five digits need wider boxes: "10000…499".
    const longest = this.inside.reduce((most, _, i) => Math.max(most, this.brief(this.firstInside + i)[1]?.length ?? 0), 0);
    if (longest > 8) this.boxWidth = Math.min(230, 21 * longest + 20);
  }

  boxOf(group, path) {
    const { data } = this, { nodes } = group, counts = new Map();
    for (const node of nodes) counts.set(data.device(data.subgraphOf[node]), (counts.get(data.device(data.subgraphOf[node])) ?? 0) + 1);
    const devices = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0]), time = data.run ? data.sumOver(nodes, data.real)[0] : 0;
    return nodes.length === 1 ? { kind: "node", nodes, node: nodes[0], devices, time } : { kind: "group", nodes, group, path, devices, time };
  }

  /** The name of a group, without the scopes before it. */
  label(group, from = this.shared) {
    if (group.first) { // "layer.0 … 19", "block0 … 19"
      const [first, last] = [this.label(group.first, from), this.label(group.last, from)];
      let shared = 0;
      while (shared < last.length && first[shared] === last[shared]) shared++;
      while (shared && /\d/.test(last[shared - 1])) shared--; // a number stays whole
      if (!/\d/.test(last[shared])) while (shared && /\w/.test(last[shared - 1])) shared--;
      return `${first} … ${last.slice(shared) || last}`;
    }
    return group.scope ? group.scope.slice(from).join("/") : this.data.keys[group.nodes[0]];
  }

  /** The box of a node that is not in this scene, on one side; those beyond the most share a box. */
  near(side, node) {
    let box = this.outside(node);
    if (!side.has(box.id) && side.size >= MOST_NEAR) box = { id: "more", kind: "more", devices: [], order: Infinity };
    if (!side.has(box.id)) side.set(box.id, { ...box, isNear: true });
    return side.get(box.id);
  }

  outside(node) {
    if (!this.parent) {
      const subgraph = this.data.subgraphOf[node];
      return { id: `s${subgraph}`, kind: "subgraph", subgraph, path: [subgraph], devices: [[this.data.device(subgraph), 1]], order: subgraph };
    }
    const place = this.parent.place(node);
    return place < 0 ? this.parent.outside(node) : { ...this.parent.boxes[place], id: `b${place}`, order: place };
  }

  place(node) { return this.placeOf.get(node) ?? -1; }
  box(i) { return this.boxes[i]; }
  color(i) { const [first] = this.boxes[i].devices; return first ? this.data.colors[first[0]] : "#888888"; }
  isOn(i, device) { return this.boxes[i].devices.some(([one]) => one === device); }

  lines(i) {
    const { data } = this, box = this.boxes[i];
    const where = !box.isNear ? "" : i < this.firstInside ? "from " : "to ";
    const time = box.time > 0 && !box.isNear ? timeText(box.time) : "";
    if (box.kind === "more") return [`${where}other parts`, ""];
    if (box.kind === "subgraph") return [`${where}subgraph ${box.subgraph + 1}`, data.deviceName(box.subgraph)];
    if (box.kind === "node") return [where + (data.op(box.node) || "node") + (time && `  ${time}`), data.keys[box.node]];
    return [where + this.label(box.group), [plural(box.nodes.length, "node"), time].filter(Boolean).join(" · ")];
  }

  short(i) {
    const box = this.boxes[i];
    return { node: () => this.data.op(box.node), group: () => this.label(box.group), subgraph: () => String(box.subgraph + 1), more: () => "…" }[box.kind]();
  }

  /** Ends of a group's name, which tell it from its neighbors, the longest first: "1900…1938", "1900…38" and "1900…" of
   *  "layer.1900 … 1938" and "block1900 … 1938". */
  brief(i) {
    const { kind, group } = this.boxes[i];
    if (kind !== "group") return [];
    const end = this.label(group).replace(/[^ ]*[./_](?=[^./_ ]+( … |$))/g, "");
    // A number says too little where it has room for its name, as "block.0" of "layer.3/block.0".
    if (!group.first) return /^\d+$/.test(end) ? [this.label(group).replace(/^.*[/](?=.)/, ""), end] : [end];
    const range = end.replace(/^[^ \d]+(?=\d+ … \d+$)/, "").replace(" … ", "…");
    // Two digits stay, and numbers of different lengths: "102…06", "95…104".
    const [, first, last] = range.match(/^(\d+)…(\d+)$/) ?? [];
    let same = 0;
    while (first?.length === last?.length && same < first?.length - 2 && first[same] === last[same]) same++;
    return [...new Set([range, same ? `${first}…${last.slice(same)}` : range, range.replace(/….*/, "…")])];
  }

  /** The share of time, or of a group on several devices the share of each. */
  bars(i) {
    const box = this.boxes[i];
    if (box.isNear) return [];
    if (box.devices.length > 1) return box.devices.map(([device, count]) => [this.data.colors[device], count / box.nodes.length]);
    return box.time > 0 ? [[this.color(i), box.time / this.longest]] : [];
  }

  tip(i) {
    const { data } = this, box = this.boxes[i];
    if (box.kind === "more") return ["Other parts"];
    if (box.kind === "subgraph") return [`Subgraph ${box.subgraph + 1} on ${data.deviceName(box.subgraph)}`, plural(data.sizes[box.subgraph], "node")];
    if (box.kind === "group") {
      const ops = data.operators(box.nodes).slice(0, 4).map(([op, count]) => `${op} ${count.toLocaleString("en")}`).join(", ");
      return [elided(this.label(box.group, 0), 200), plural(box.nodes.length, "node"), box.devices.map(([device, count]) => `${data.devices[device]} ${count.toLocaleString("en")}`).join(", "), ops];
    }
    const { node } = box, time = data.run && data.real[node] >= 0 ? `${timeText(data.real[node])}, ${data.strings[data.how[node]]}` : "";
    return [elided(data.keys[node], 200), data.op(node), time, elided(data.reason(node), 240)];
  }

  edgeTip() { return []; }
}
