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
    Object.assign(this, { model: json.model, policy: json.policy, generator: json.generator, warnings: json.warnings, unknownSizes: json.unknown_sizes });
    this.strings = json.strings;
    this.devices = json.run ? json.run.devices : json.devices;
    this.totals = json.totals;
    this.colors = this.devices.map((_, i) => json.colors[i % json.colors.length]);
    this.keys = json.nodes.key;
    this.ops = json.ops;
    this.opOf = json.nodes.op;
    this.reasonOf = json.nodes.reason;
    this.deviceOf = json.subgraphs.device;
    this.sizes = json.subgraphs.size;
    this.stages = json.stages;
    this.numNodes = this.keys.length;
    this.numSubgraphs = this.sizes.length;
    this.firstNode = starts(this.sizes);
    this.subgraphOf = new Int32Array(this.numNodes);
    for (let s = 0; s < this.numSubgraphs; s++) this.subgraphOf.fill(s, this.firstNode[s], this.firstNode[s + 1]);
    this.hasEdges = json.tensors !== null;
    if (this.hasEdges) this.readTensors(json);
    this.readValues(json.values);
    this.readRun(json.run);
  }

  /** Tensors by number, and which of them each node reads and writes; -1 is an absent one. */
  readTensors(json) {
    const { tensors, types, attributes, attributes_of: attributesOf } = json;
    const rows = ({ count, tensor }) => {
      const start = starts(count), numbers = new Int32Array(tensor.length);
      for (let node = 0; node < this.numNodes; node++) {
        for (let i = start[node]; i < start[node + 1]; i++) numbers[i] = tensor[i] === null ? -1 : tensor[i] + node;
      }
      return (node) => numbers.subarray(start[node], start[node + 1]);
    };
    this.tensorName = (tensor) => tensors.name[tensor];
    this.tensorType = (tensor) => types[tensors.type[tensor]];
    this.reads = rows(json.reads);
    this.writes = rows(json.writes);
    this.captures = rows(json.captures);
    this.contents = new Map(tensors.constant.map((tensor, i) => [tensor, tensors.contents[i]]));
    this.outputs = new Set(tensors.outputs);
    this.attributes = (node) => (attributesOf[node] < 0 ? [] : attributes[attributesOf[node]]);
    this.makerOf = new Int32Array(tensors.name.length).fill(-1);
    for (let node = 0; node < this.numNodes; node++) for (const tensor of this.writes(node)) if (tensor >= 0) this.makerOf[tensor] = node;
    const from = [], to = [];
    for (let node = 0; node < this.numNodes; node++) {
      for (const maker of this.makersOfNode(node)) { from.push(maker); to.push(node); }
    }
    const readers = grouped(this.numNodes, from);
    this.readersOfNode = (node) => Array.from(readers(node), (edge) => to[edge]);
  }

  makersOfNode(node) {
    const makers = new Set();
    for (const tensors of [this.reads(node), this.captures(node)]) {
      for (const tensor of tensors) if (tensor >= 0 && this.makerOf[tensor] >= 0) makers.add(this.makerOf[tensor]);
    }
    return [...makers];
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
    const planned = this.valueBytes;
    this.valueBytes = planned.map((size, i) => measured.get(this.valueNames[i]) ?? size);
    this.real = run.real;
    this.cpu = run.cpu;
    this.how = run.how;
    this.spanOf = new Map(run.spans.subgraph.map((subgraph, span) => [subgraph, span])); // the last request's
    this.requests = run.spans.request.reduce((most, request) => Math.max(most, request + 1), 1);
    this.runLength = run.spans.end.reduce((most, end) => Math.max(most, end), 1);
    this.ranOn = this.deviceOf.slice();
    run.spans.subgraph.forEach((subgraph, span) => {
      if (subgraph >= 0) this.ranOn[subgraph] = run.lanes[run.spans.lane[span]][0];
    });
    if (this.valueBytes.some((size, i) => size !== planned[i])) this.countTransfers();
    this.timeOf = this.sizes.map((_, s) => {
      // A subgraph that runs with others, as one stage, has no span of its own.
      const span = this.spanOf.get(s), [total, counted] = this.sumOver(this.nodesOf(s), this.real);
      if (span !== undefined && (!counted || this.togetherWith(s)[1] === 1)) return run.spans.end[span] - run.spans.begin[span];
      return counted ? total : -1;
    });
  }

  /** The received and sent bytes of each device, by the measured sizes of values. */
  countTransfers() {
    const received = this.devices.map(() => []), sent = this.devices.map(() => []);
    for (let value = 0; value < this.valueNames.length; value++) {
      const from = this.ranOn[this.valueSource[value]];
      const to = new Set(this.readersOf(value).map((reader) => this.ranOn[reader]));
      to.delete(from);
      if (to.size) sent[from].push(value);
      for (const device of to) received[device].push(value);
    }
    this.totals = this.devices.map((_, i) => {
      const [nodes, subgraphs, weights] = this.totals[i] ?? [0, 0, 0];
      const unknown = [...received[i], ...sent[i]].filter((value) => this.valueBytes[value] < 0).length;
      return [nodes, subgraphs, weights, this.bytesOf(received[i]), this.bytesOf(sent[i]), unknown];
    });
  }

  /** Sum of a column over some nodes, and how many of them have it. */
  sumOver(nodes, column) {
    let total = 0, counted = 0;
    for (const node of nodes) if (column[node] >= 0) { total += column[node]; counted++; }
    return [total, counted];
  }

  /** Known bytes of some values. */
  bytesOf(values) {
    let total = 0;
    for (const value of values) total += Math.max(0, this.valueBytes[value]);
    return total;
  }

  /** "2.3 MB", "2.3 MB + 1 unknown" or "1 unknown", as the command line prints it. */
  sizeOf(values) {
    const all = [...values], bytes = this.bytesOf(all);
    const unknown = all.filter((value) => this.valueBytes[value] < 0).length;
    if (!unknown) return bytesText(bytes);
    if (unknown === all.length) return "size unknown";
    return `${bytes ? `${bytesText(bytes)} + ` : ""}${unknown.toLocaleString("en")} unknown`;
  }

  device(subgraph) { return this.run ? this.ranOn[subgraph] : this.deviceOf[subgraph]; }
  deviceName(subgraph) { return this.devices[this.device(subgraph)]; }
  color(subgraph) { return this.colors[this.device(subgraph)]; }
  op(node) { return this.opOf[node] < 0 ? "" : this.ops[this.opOf[node]].name; }
  reason(node) { return this.reasonOf[node] < 0 ? "" : this.strings[this.reasonOf[node]]; }
  type(value) { return this.strings[this.valueTypes[value]]; }

  /** The subgraphs that run as one with a subgraph: its stage in a pipeline. */
  togetherWith(subgraph) { return this.stages?.find(([first, count]) => subgraph >= first && subgraph < first + count) ?? [subgraph, 1]; }
  /** What runs as one: a stage of a pipeline, a subgraph, or the whole model. */
  runName(subgraph) {
    if (subgraph < 0) return "the model";
    return this.stages ? `stage ${this.stages.findIndex(([first]) => first === subgraph) + 1}` : `subgraph ${subgraph + 1}`;
  }

  /** How often each value of a column stands among some nodes, the most frequent first; without -1. */
  counted(nodes, column) {
    const counts = new Map();
    for (const node of nodes) if (column[node] >= 0) counts.set(column[node], (counts.get(column[node]) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  }
  operators(nodes) { return this.counted(nodes, this.opOf).map(([op, count]) => [this.ops[op].name, count]); }
  reasons(nodes) { return this.counted(nodes, this.reasonOf).map(([reason, count]) => [this.strings[reason], count]); }

  /** The nodes of a subgraph, ascending. */
  nodesOf(subgraph) { return Int32Array.from({ length: this.sizes[subgraph] }, (_, i) => this.firstNode[subgraph] + i); }
}
