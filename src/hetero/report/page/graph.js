// The graph: the subgraphs and what passes between them, or the nodes of one subgraph, drawn on a canvas.

const FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
const READABLE = 0.55; // the scale from which boxes have text

/** What is drawn: boxes with two lines of text, edges, and how to say what they are. */
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
  color(s) { return this.data.color(s); }
  lines(s) {
    const { data } = this;
    const time = data.run ? timeText(data.timeOf[s]) : "";
    return [`${s + 1}  ${data.deviceName(s)}`, [plural(data.sizes[s], "node"), time].filter(Boolean).join(" · ")];
  }
  short(s) { return String(s + 1); }
  share(s) { return this.data.run ? Math.max(0, this.data.timeOf[s]) / this.longest : 0; }
  subgraph(s) { return s; }
  edgeLabel(link) {
    const size = this.data.bytesOf(link.values);
    return size || link.values.every((v) => this.data.valueBytes[v] === 0) ? bytesText(size) : plural(link.values.length, "value");
  }
  tip(s) {
    const { data } = this;
    const begin = data.firstNode[s], end = data.firstNode[s + 1];
    const ops = data.operators(begin, end).slice(0, 4).map(([op, count]) => `${op} ${count}`).join(", ");
    return [
      `Subgraph ${s + 1} on ${data.deviceName(s)}`,
      plural(data.sizes[s], "node") + (data.run && data.timeOf[s] >= 0 ? `, ${timeText(data.timeOf[s])}` : ""),
      ops,
      end > begin ? elided(data.keys[begin], 90) : "",
    ];
  }
  edgeTip(link) {
    const { data } = this;
    const values = link.values.slice(0, 5).map((v) => `${elided(data.valueNames[v], 60)}: ${data.type(v)}, ${bytesText(data.valueBytes[v])}`);
    if (link.values.length > 5) values.push(`and ${link.values.length - 5} more`);
    return [`${plural(link.values.length, "value")} from subgraph ${link.from + 1} to ${link.to + 1}`, ...values];
  }
  say(s) { return this.tip(s).join(", "); }
}

/** The nodes of one subgraph; before them the subgraphs it reads from, after them those that read it. */
class NodeScene {
  constructor(data, subgraph) {
    this.data = data;
    this.of = subgraph;
    this.boxWidth = 164;
    this.boxHeight = 40;
    const first = data.firstNode[subgraph], last = data.firstNode[subgraph + 1];
    const sources = new Set(), readers = new Set();
    const edges = [];
    for (let node = first; node < last; node++) {
      for (const to of data.readersOfNode(node)) {
        if (data.subgraphOf[to] === subgraph) edges.push(["node", node, "node", to]);
        else { readers.add(data.subgraphOf[to]); edges.push(["node", node, "after", data.subgraphOf[to]]); }
      }
      for (const from of data.makersOfNode(node)) {
        if (data.subgraphOf[from] === subgraph) continue;
        sources.add(data.subgraphOf[from]);
        edges.push(["before", data.subgraphOf[from], "node", node]);
      }
    }
    this.before = [...sources].sort((a, b) => a - b);
    this.after = [...readers].sort((a, b) => a - b);
    this.first = first;
    this.nodes = last - first;
    this.count = this.before.length + this.nodes + this.after.length;
    const place = {
      before: new Map(this.before.map((s, i) => [s, i])),
      after: new Map(this.after.map((s, i) => [s, this.before.length + this.nodes + i])),
    };
    const index = (kind, id) => (kind === "node" ? this.before.length + id - first : place[kind].get(id));
    const seen = new Set();
    this.edges = [];
    for (const [kind, id, otherKind, other] of edges) {
      const from = index(kind, id), to = index(otherKind, other), key = from * this.count + to;
      if (!seen.has(key)) { seen.add(key); this.edges.push({ from, to }); }
    }
    this.longest = 1;
    if (data.run) for (let node = first; node < last; node++) this.longest = Math.max(this.longest, data.real[node]);
    this.weight = () => 1.2;
  }
  /** The node at a place, -1 for a neighboring subgraph. */
  node(i) {
    const at = i - this.before.length;
    return at >= 0 && at < this.nodes ? this.first + at : -1;
  }
  place(node) { return node - this.first + this.before.length; }
  subgraph(i) {
    if (i < this.before.length) return this.before[i];
    return this.node(i) >= 0 ? this.of : this.after[i - this.before.length - this.nodes];
  }
  color(i) { return this.data.color(this.subgraph(i)); }
  lines(i) {
    const { data } = this, node = this.node(i);
    if (node < 0) return [`${i < this.before.length ? "from" : "to"} subgraph ${this.subgraph(i) + 1}`, data.deviceName(this.subgraph(i))];
    const time = data.run ? timeText(data.real[node]) : "";
    return [(data.op(node) || "node") + (time && data.real[node] > 0 ? `  ${time}` : ""), data.keys[node]];
  }
  short(i) { return this.node(i) < 0 ? String(this.subgraph(i) + 1) : this.data.op(this.node(i)); }
  share(i) { return this.data.run && this.node(i) >= 0 ? Math.max(0, this.data.real[this.node(i)]) / this.longest : 0; }
  tip(i) {
    const { data } = this, node = this.node(i);
    if (node < 0) return [`Subgraph ${this.subgraph(i) + 1} on ${data.deviceName(this.subgraph(i))}`, plural(data.sizes[this.subgraph(i)], "node")];
    const time = data.run && data.real[node] >= 0 ? `${timeText(data.real[node])}, ${data.strings[data.how[node]]}` : "";
    return [elided(data.keys[node], 200), data.op(node), time, elided(data.reason(node), 240)];
  }
  edgeTip() { return []; }
  say(i) { return this.tip(i).join(", "); }
}

class GraphView {
  constructor(data, choose) {
    Object.assign(this, { data, choose, chosen: -1, hovered: -1, dim: null, marked: null });
    this.canvas = byId("drawing");
    this.view = new Viewport(this.canvas, (context) => this.draw(context));
    this.view.resized = () => { if (this.fitted) this.fit(); };
    this.scenes = new Map();
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { tip.hide(); this.setHovered(-1); });
    this.canvas.addEventListener("click", (event) => { if (!this.view.moved) this.choose.at(this.boxAt(event)); });
    this.canvas.addEventListener("dblclick", (event) => { const box = this.boxAt(event); if (box >= 0) this.choose.open(box); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["pointerdown", "wheel", "keydown"]) this.canvas.addEventListener(kind, () => { this.fitted = false; });
    byId("zoom-in").onclick = () => { this.fitted = false; this.view.zoom(1.4); };
    byId("zoom-out").onclick = () => { this.fitted = false; this.view.zoom(1 / 1.4); };
    byId("zoom-fit").onclick = () => this.fit();
    document.fonts?.ready.then(() => { fitting.clear(); this.view.redraw(); });
  }

  /** Draws the subgraphs (-1) or the nodes of a subgraph; a layout is made once. */
  show(subgraph) {
    if (!this.scenes.has(subgraph)) {
      const scene = subgraph < 0 ? new SubgraphScene(this.data) : new NodeScene(this.data, subgraph);
      const from = Int32Array.from(scene.edges, (edge) => edge.from), to = Int32Array.from(scene.edges, (edge) => edge.to);
      const aspect = this.view.height ? this.view.width / this.view.height : 1.8;
      scene.layout = layered(scene.count, from, to, scene.boxWidth, scene.boxHeight, aspect);
      scene.out = grouped(scene.count, from);
      scene.into = grouped(scene.count, to);
      if (this.scenes.size > 20) this.scenes.delete([...this.scenes.keys()].find((key) => key >= 0));
      this.scenes.set(subgraph, scene);
    }
    this.scene = this.scenes.get(subgraph);
    this.hovered = -1;
    this.fit();
  }

  fit() {
    this.fitted = true;
    if (this.scene) this.view.fit(this.scene.layout.width, this.scene.layout.height);
  }

  setChosen(box, reveal) {
    this.chosen = box;
    if (box >= 0 && reveal) {
      this.fitted = false;
      this.view.reveal(this.scene.layout.x[box], this.scene.layout.y[box], 0.8);
    }
    this.view.redraw();
  }

  setHovered(box) { if (box !== this.hovered) { this.hovered = box; this.view.redraw(); } }

  boxAt(event) {
    const { scene, view } = this, [x, y] = view.toDrawing(...view.local(event));
    const slack = Math.max(0, 3 / view.scale - 6); // tiny boxes are easier to hit than they look
    const half = scene.boxWidth / 2 + slack, tall = scene.boxHeight / 2 + slack;
    for (let i = 0; i < scene.count; i++) {
      if (Math.abs(scene.layout.x[i] - x) <= half && Math.abs(scene.layout.y[i] - y) <= tall) return i;
    }
    return -1;
  }

  edgeAt(event) {
    const { scene, view } = this, [x, y] = view.toDrawing(...view.local(event));
    if (view.scale < 0.25) return null;
    let least = 5 / view.scale, found = null;
    scene.layout.courses.forEach((course, e) => {
      const distance = distanceTo(course, x, y);
      if (distance < least) { least = distance; found = scene.edges[e]; }
    });
    return found;
  }

  hover(event) {
    if (event.buttons || !this.scene) return;
    const box = this.boxAt(event);
    this.setHovered(box);
    this.canvas.classList.toggle("on-something", box >= 0);
    const edge = box < 0 ? this.edgeAt(event) : null;
    const lines = box >= 0 ? this.scene.tip(box) : edge ? this.scene.edgeTip(edge) : [];
    if (lines.length) tip.show(lines, event.clientX, event.clientY);
    else tip.hide();
  }

  /** Where a box is on the page: for keys, scripts and tests. */
  positionOf(box) {
    const at = this.canvas.getBoundingClientRect(), { layout } = this.scene;
    const [x, y] = this.view.toScreen(layout.x[box], layout.y[box]);
    return [x + at.left, y + at.top];
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { scene } = this, { layout } = scene;
    const beside = (step) => {
      const row = layout.rows[layout.layerOf[this.chosen]].filter((v) => v < scene.count);
      return row[row.indexOf(this.chosen) + step] ?? -1;
    };
    const along = (edges, end) => (edges(this.chosen).length ? scene.edges[edges(this.chosen)[0]][end] : -1);
    const moves = {
      ArrowDown: () => (this.chosen < 0 ? 0 : along(scene.out, "to")),
      ArrowUp: () => (this.chosen < 0 ? 0 : along(scene.into, "from")),
      ArrowLeft: () => (this.chosen < 0 ? 0 : beside(-1)),
      ArrowRight: () => (this.chosen < 0 ? 0 : beside(1)),
      Home: () => 0,
      End: () => scene.count - 1,
    };
    if (event.key in moves) {
      const box = moves[event.key]();
      if (box >= 0 && box < scene.count) { this.choose.at(box, true); say(scene.say(box)); }
    } else if (event.key === "Enter") {
      if (this.chosen >= 0) this.choose.open(this.chosen);
    } else if (event.key === "Escape" || event.key === "Backspace") this.choose.back();
    else if (event.key === "+" || event.key === "=") this.view.zoom(1.4);
    else if (event.key === "-") this.view.zoom(1 / 1.4);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  draw(context) {
    const { scene, view } = this;
    if (!scene) return;
    const colors = themeColors();
    const { layout } = scene;
    const [left, top] = view.toDrawing(0, 0), [right, bottom] = view.toDrawing(view.width, view.height);
    context.translate(view.x, view.y);
    context.scale(view.scale, view.scale);
    const halfX = scene.boxWidth / 2, halfY = scene.boxHeight / 2;
    const seen = [];
    for (let i = 0; i < scene.count; i++) {
      const x = layout.x[i], y = layout.y[i];
      if (x + halfX >= left && x - halfX <= right && y + halfY >= top && y - halfY <= bottom) seen.push(i);
    }
    const tiny = view.scale < 0.12 && seen.length > 2000; // edges would be a haze, and boxes are drawn by color
    if (!tiny) this.drawEdges(context, colors, left, top, right, bottom);
    const large = tiny ? this.drawTiny(context, colors, seen) : seen;
    for (const i of large) this.drawBox(context, colors, i, layout.x[i] - halfX, layout.y[i] - halfY);
    if (scene.edgeLabel && view.scale >= READABLE) this.labelEdges(context, colors, top, bottom);
  }

  isFaint(i) {
    return Boolean((this.dim && this.dim(this.scene.subgraph(i))) || (this.marked && !this.marked(i)));
  }

  /** Plain boxes, a path for each color; gives those that stand out and are still to be drawn. */
  drawTiny(context, colors, boxes) {
    const { scene } = this, { layout, boxWidth, boxHeight } = scene;
    const paths = new Map(), standing = [];
    for (const i of boxes) {
      const faint = this.isFaint(i);
      if (i === this.chosen || i === this.hovered || (this.marked && !faint)) { standing.push(i); continue; }
      const key = scene.color(i) + (faint ? "faint" : "");
      if (!paths.has(key)) paths.set(key, { color: scene.color(i), alpha: faint ? 0.22 : 1, path: new Path2D() });
      paths.get(key).path.rect(layout.x[i] - boxWidth / 2, layout.y[i] - boxHeight / 2, boxWidth, boxHeight);
    }
    for (const { color, alpha, path } of paths.values()) {
      context.globalAlpha = alpha;
      context.fillStyle = mixed(color, colors.ground, 0.85);
      context.fill(path);
    }
    context.globalAlpha = 1;
    return standing;
  }

  /** How much passes, beside edges from one layer to the next, as long as labels do not meet. */
  labelEdges(context, colors, top, bottom) {
    const { scene } = this, taken = [];
    context.font = `11px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    scene.layout.courses.forEach((course, e) => {
      const [x1, y1, x2, y2] = course.points;
      if (course.points.length !== 4 || y2 < top || y1 > bottom || taken.length > 400) return;
      const text = scene.edgeLabel(scene.edges[e]), width = context.measureText(text).width;
      const x = (x1 + x2) / 2 + 6, y = (y1 + y2) / 2 - 1;
      if (Math.abs(x2 - x1) > 60 || taken.some(([left, at, wide]) => Math.abs(at - y) < 14 && left < x + width + 8 && x < left + wide + 8)) return;
      taken.push([x, y, width]);
      context.lineWidth = 3;
      context.strokeStyle = colors.ground;
      context.strokeText(text, x, y);
      context.fillStyle = colors.faint;
      context.fillText(text, x, y);
    });
  }

  drawEdges(context, colors, left, top, right, bottom) {
    const { scene, view } = this, { courses } = scene.layout;
    const smooth = view.scale > 0.12;
    const inside = (course) => {
      const p = course.points, end = p.length;
      if (course.turns.length) return true;
      const low = Math.min(p[0], p[end - 2]), high = Math.max(p[0], p[end - 2]);
      return high + 400 > left && low - 400 < right && p[end - 1] > top && p[1] < bottom;
    };
    const chosen = [], byWidth = new Map();
    const focus = this.hovered >= 0 ? this.hovered : this.chosen;
    courses.forEach((course, e) => {
      if (!inside(course)) return;
      const edge = scene.edges[e];
      if (edge.from === focus || edge.to === focus) { chosen.push(e); return; }
      const width = Math.round(scene.weight(edge) * 2) / 2;
      if (!byWidth.has(width)) byWidth.set(width, []);
      byWidth.get(width).push(e);
    });
    const head = Math.min(9, 7 / Math.max(view.scale, 0.7));
    const stroke = (edges, color, width, alpha) => {
      context.globalAlpha = alpha;
      context.strokeStyle = context.fillStyle = color;
      context.lineWidth = Math.max(width, 0.6 / view.scale);
      context.beginPath();
      for (const e of edges) trace(context, courses[e], smooth);
      context.stroke();
      if (view.scale > 0.3) {
        context.beginPath();
        for (const e of edges) arrow(context, courses[e], head);
        context.fill();
      }
      context.globalAlpha = 1;
    };
    const faint = focus >= 0 || this.marked ? 0.45 : 0.8;
    for (const [width, edges] of byWidth) stroke(edges, colors.edge, width, faint);
    if (chosen.length) stroke(chosen, colors.accent, 2.2, 1);
  }

  drawBox(context, colors, i, x, y) {
    const { scene, view } = this, { boxWidth, boxHeight } = scene, color = scene.color(i);
    const faint = this.isFaint(i);
    const detailed = view.scale >= READABLE * 0.75;
    context.globalAlpha = faint ? 0.22 : 1;
    context.fillStyle = detailed ? mixed(color, colors.ground, 0.26) : mixed(color, colors.ground, 0.85);
    context.beginPath();
    context.roundRect(x, y, boxWidth, boxHeight, 7);
    context.fill();
    if (detailed) {
      context.save();
      context.clip();
      context.fillStyle = color;
      context.fillRect(x, y, 6, boxHeight);
      if (scene.share(i) > 0) {
        context.globalAlpha *= 0.75;
        context.fillRect(x + 6, y + boxHeight - 4, (boxWidth - 6) * scene.share(i), 4);
      }
      context.restore();
    }
    const chosen = i === this.chosen, marked = this.marked && !faint;
    if (detailed || chosen || marked || i === this.hovered) {
      context.strokeStyle = chosen || marked ? colors.accent : i === this.hovered ? colors.text : color;
      context.lineWidth = chosen ? Math.max(2.5, 2.5 / view.scale) : marked ? Math.max(1.8, 1.5 / view.scale) : 1;
      context.beginPath();
      context.roundRect(x, y, boxWidth, boxHeight, 7);
      context.stroke();
    }
    context.fillStyle = colors.text;
    if (detailed) {
      const [first, second] = scene.lines(i), room = boxWidth - 24;
      context.textBaseline = "alphabetic";
      context.textAlign = "left";
      context.font = `600 13px ${FONT}`;
      context.fillText(fitted(context, first, room), x + 15, y + boxHeight / 2 - 3);
      context.font = `12px ${FONT}`;
      context.fillStyle = colors.faint;
      context.fillText(fitted(context, second, room), x + 15, y + boxHeight / 2 + 13);
    } else if (view.scale > 0.2 && scene.short(i)) {
      context.font = `600 ${Math.min(30, 10.5 / view.scale)}px ${FONT}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = contrast(color);
      context.fillText(fitted(context, scene.short(i), boxWidth - 6), x + boxWidth / 2, y + boxHeight / 2 + 1);
    }
    context.globalAlpha = 1;
  }
}

/** Black or white, whichever can be read on a color. */
function contrast(color) {
  const part = (at) => parseInt(color.slice(at, at + 2), 16);
  return 0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5) > 140 ? "#1f2328" : "#ffffff";
}
