// The report's data: columns out of the page, and what follows from them.

/** Undoes base64 and deflate. */
async function unpacked(text) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser cannot undo the compression of the data: make the report with compress=False");
  }
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

async function readData() {
  const element = byId("data");
  const text = element.type === "application/json" ? element.textContent : await unpacked(element.textContent);
  element.remove(); // megabytes that nobody needs twice
  return new Data(JSON.parse(text));
}

/** Counts to where each row starts. */
function starts(counts) {
  const result = new Int32Array(counts.length + 1);
  for (let i = 0; i < counts.length; i++) result[i + 1] = result[i] + counts[i];
  return result;
}

/** Rows of numbers by key: indices 0..n-1 grouped by what keyOf gives. */
function grouped(rows, keys) {
  const start = new Int32Array(rows + 1);
  for (const key of keys) start[key + 1]++;
  for (let i = 0; i < rows; i++) start[i + 1] += start[i];
  const next = start.slice(), item = new Int32Array(keys.length);
  keys.forEach((key, i) => { item[next[key]++] = i; });
  return (row) => item.subarray(start[row], start[row + 1]);
}

/**
 * Nodes are numbered by subgraph and then in topological order; subgraphs, in an order in which they can run, from 0.
 */
class Data {
  constructor(json) {
    Object.assign(this, { model: json.model, policy: json.policy, generator: json.generator, warnings: json.warnings });
    this.strings = json.strings;
    this.devices = json.run ? json.run.devices : json.devices;
    this.totals = json.totals;
    this.colors = this.devices.map((_, i) => json.colors[i % json.colors.length]);
    this.keys = json.nodes.key;
    this.opOf = json.nodes.op;
    this.reasonOf = json.nodes.reason;
    this.deviceOf = json.subgraphs.device;
    this.sizes = json.subgraphs.size;
    this.numNodes = this.keys.length;
    this.numSubgraphs = this.sizes.length;
    this.firstNode = starts(this.sizes);
    this.subgraphOf = new Int32Array(this.numNodes);
    for (let s = 0; s < this.numSubgraphs; s++) this.subgraphOf.fill(s, this.firstNode[s], this.firstNode[s + 1]);
    this.hasEdges = json.edges !== null;
    this.readEdges(json.edges);
    this.readValues(json.values);
    this.readRun(json.run);
  }

  readEdges(edges) {
    this.edgeStart = edges ? starts(edges.count) : new Int32Array(this.numNodes + 1);
    this.edgeTo = new Int32Array(edges ? edges.to.length : 0);
    const from = new Int32Array(this.edgeTo.length);
    for (let node = 0; node < this.numNodes; node++) {
      for (let i = this.edgeStart[node]; i < this.edgeStart[node + 1]; i++) {
        this.edgeTo[i] = edges.to[i] + node;
        from[i] = node;
      }
    }
    this.edgeFrom = from;
  }

  readValues(values) {
    this.valueNames = values.name;
    this.valueTypes = values.type;
    this.valueBytes = values.bytes;
    this.valueSource = values.source;
    const start = starts(values.count);
    this.readersOf = (value) => values.reader.slice(start[value], start[value + 1]);
    this.made = grouped(this.numSubgraphs, values.source);
    const valueOfRead = new Int32Array(values.reader.length);
    for (let value = 0; value < values.name.length; value++) valueOfRead.fill(value, start[value], start[value + 1]);
    const reads = grouped(this.numSubgraphs, values.reader);
    this.read = (subgraph) => Array.from(reads(subgraph), (at) => valueOfRead[at]);
    // Edges between subgraphs, each with its values.
    const edges = new Map();
    for (let at = 0; at < valueOfRead.length; at++) {
      const value = valueOfRead[at], key = values.source[value] * this.numSubgraphs + values.reader[at];
      const edge = edges.get(key);
      if (edge) edge.values.push(value);
      else edges.set(key, { from: values.source[value], to: values.reader[at], values: [value] });
    }
    this.links = [...edges.values()].sort((a, b) => a.from - b.from || a.to - b.to);
  }

  readRun(run) {
    this.run = run;
    if (!run) return;
    const measured = new Map(run.bytes);
    this.valueBytes = this.valueBytes.map((size, i) => measured.get(this.valueNames[i]) ?? size);
    this.real = run.real;
    this.cpu = run.cpu;
    this.how = run.how;
    this.spanOf = new Map(run.spans.subgraph.map((subgraph, span) => [subgraph, span]));
    this.runLength = run.spans.end.reduce((most, end) => Math.max(most, end), 1);
    this.ranOn = this.deviceOf.slice();
    run.spans.subgraph.forEach((subgraph, span) => {
      if (subgraph >= 0) this.ranOn[subgraph] = run.lanes[run.spans.lane[span]][0];
    });
    this.timeOf = this.sizes.map((_, s) => {
      const span = this.spanOf.get(s);
      if (span !== undefined) return run.spans.end[span] - run.spans.begin[span];
      const [total, counted] = this.sumOver(s, this.real);
      return counted ? total : -1;
    });
  }

  /** Sum of a column over a subgraph's nodes, and how many of them have it. */
  sumOver(subgraph, column) {
    let total = 0, counted = 0;
    for (let node = this.firstNode[subgraph]; node < this.firstNode[subgraph + 1]; node++) {
      if (column[node] >= 0) { total += column[node]; counted++; }
    }
    return [total, counted];
  }

  /** Known bytes of some values. */
  bytesOf(values) {
    let total = 0;
    for (const value of values) total += Math.max(0, this.valueBytes[value]);
    return total;
  }

  device(subgraph) { return this.run ? this.ranOn[subgraph] : this.deviceOf[subgraph]; }
  deviceName(subgraph) { return this.devices[this.device(subgraph)]; }
  color(subgraph) { return this.colors[this.device(subgraph)]; }
  op(node) { return this.opOf[node] < 0 ? "" : this.strings[this.opOf[node]]; }
  reason(node) { return this.reasonOf[node] < 0 ? "" : this.strings[this.reasonOf[node]]; }
  type(value) { return this.strings[this.valueTypes[value]]; }
  readersOfNode(node) { return this.edgeTo.subarray(this.edgeStart[node], this.edgeStart[node + 1]); }
  makersOfNode(node) {
    this.incoming ??= grouped(this.numNodes, this.edgeTo);
    return Array.from(this.incoming(node), (edge) => this.edgeFrom[edge]);
  }

  /** How often each operator stands among some nodes, the most frequent first. */
  operators(begin, end) {
    const counts = new Map();
    for (let node = begin; node < end; node++) counts.set(this.opOf[node], (counts.get(this.opOf[node]) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([op, count]) => [op < 0 ? "unknown" : this.strings[op], count]);
  }

  /** The distinct reasons of some nodes, the most frequent first. */
  reasons(begin, end) {
    const counts = new Map();
    for (let node = begin; node < end; node++) {
      if (this.reasonOf[node] >= 0) counts.set(this.reasonOf[node], (counts.get(this.reasonOf[node]) ?? 0) + 1);
    }
    return [...counts].sort((a, b) => b[1] - a[1]).map(([reason, count]) => [this.strings[reason], count]);
  }
}
