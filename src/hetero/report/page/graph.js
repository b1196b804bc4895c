// The graph: a scene (subgraphs, scopes or nodes, and what passes between them), drawn on a canvas.

const FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
const READABLE = 0.75; // the scale from which boxes have two lines of text, of 9 px
const LABELED = 0.2; // the scale from which boxes have their short name
const LEGIBLE = 0.28; // the scale from which short names have 8 px: a graph is not drawn smaller at first

class GraphView {
  constructor(data, choose) {
    Object.assign(this, { data, choose, chosen: -1, hovered: -1, device: -1, marked: null });
    this.canvas = byId("drawing");
    this.view = new Viewport(this.canvas, (context) => this.draw(context));
    this.view.resized = () => { if (this.fitted) this.fitted(); };
    this.scenes = new Map();
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { tip.hide(); this.setHovered(-1); });
    this.canvas.addEventListener("click", (event) => { if (!this.view.moved) this.choose.at(this.boxAt(event)); });
    this.canvas.addEventListener("dblclick", (event) => { const box = this.boxAt(event); if (box >= 0) this.choose.open(box); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["pointerdown", "wheel", "keydown"]) this.canvas.addEventListener(kind, () => { this.fitted = null; });
    byId("zoom-in").onclick = () => { this.fitted = null; this.view.zoom(1.4); };
    byId("zoom-out").onclick = () => { this.fitted = null; this.view.zoom(1 / 1.4); };
    byId("zoom-fit").onclick = () => this.fit();
    document.fonts?.ready.then(() => { fitting.clear(); this.view.redraw(); });
  }

  /**
   * The scene at a path: [] has the subgraphs, [s] the nodes of subgraph s, ["names"] all nodes by their names; each
   * further step is a group in the scene before. Null if there is none. A layout is made once.
   */
  sceneAt(path) {
    const key = path.join("."), last = path.at(-1);
    if (this.scenes.has(key)) return this.scenes.get(key);
    const { data } = this, parent = path.length > 1 ? this.sceneAt(path.slice(0, -1)) : null;
    let scene = null;
    if (!path.length) scene = new SubgraphScene(data);
    else if (!data.hasEdges) return null;
    else if (path.length > 1) {
      const box = parent?.inside[last];
      if (box?.kind === "group") scene = new NodeScene(data, box.nodes, path, parent);
    } else if (last === "names") scene = new NodeScene(data, Int32Array.from(data.keys.keys()), path, null);
    else if (last < data.numSubgraphs) scene = new NodeScene(data, data.nodesOf(last), path, null);
    if (!scene) return null;
    if (this.scenes.size > 20) this.scenes.delete([...this.scenes.keys()].find(Boolean));
    this.scenes.set(key, scene);
    return scene;
  }

  show(scene) {
    if (!scene.layout) {
      const from = Int32Array.from(scene.edges, (edge) => edge.from), to = Int32Array.from(scene.edges, (edge) => edge.to);
      const { width, height } = this.view.height ? this.view : { width: 900, height: 500 };
      const least = scene.count > MOST_BOXES ? 0 : LEGIBLE;
      scene.layout = layered(scene.count, from, to, scene.boxWidth, scene.boxHeight, { width, height, least });
      scene.edges.forEach((edge, e) => { scene.layout.courses[e].back = edge.back; });
      scene.out = grouped(scene.count, from);
      scene.into = grouped(scene.count, to);
    }
    this.scene = scene;
    this.hovered = this.chosen = -1;
    this.start();
  }

  fit() {
    this.fitted = this.fit;
    if (this.scene) this.view.fit(this.scene.layout.width, this.scene.layout.height);
  }

  /** All of the graph, or its beginning if names would be too small. */
  start() {
    this.fit();
    this.fitted = this.start;
    const { view, scene: { count, layout } } = this;
    if (count > MOST_BOXES || view.scale >= LEGIBLE) return;
    view.scale = Math.min(Math.max(view.widthScale(layout.width), LEGIBLE), READABLE);
    const middle = layout.width * view.scale <= view.width ? layout.width / 2 : layout.x[0];
    view.place(middle, 0, view.width / 2, 20);
  }

  setChosen(box, reveal) {
    this.chosen = box;
    if (box >= 0 && reveal) {
      this.fitted = null;
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
    if (event.buttons || event.pointerType === "touch" || !this.scene) return;
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
      if (box >= 0 && box < scene.count) { this.choose.at(box, true); say(scene.tip(box).filter(Boolean).join(", ")); }
    } else if (event.key === "Enter" || event.key === " ") {
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
    return (this.device >= 0 && !this.scene.isOn(i, this.device)) || Boolean(this.marked && !this.marked.has(i));
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
    const detailed = view.scale >= READABLE, barHeight = Math.min(8, 3 / view.scale);
    context.globalAlpha = faint ? 0.22 : 1;
    context.fillStyle = detailed ? mixed(color, colors.ground, 0.26) : mixed(color, colors.ground, 0.85);
    context.beginPath();
    context.roundRect(x, y, boxWidth, boxHeight, 7);
    context.fill();
    if (view.scale >= LABELED) {
      context.save();
      context.clip();
      context.fillStyle = color;
      context.fillRect(x, y, 6, boxHeight);
      let left = x + 6;
      for (const [part, share] of scene.bars(i)) {
        context.fillStyle = part;
        context.fillRect(left, y + boxHeight - barHeight, (boxWidth - 6) * share, barHeight);
        left += (boxWidth - 6) * share;
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
      context.fillText(fitted(context, first, room, scene.brief?.(i)), x + 15, y + boxHeight / 2 - 3);
      context.font = `12px ${FONT}`;
      context.fillText(fitted(context, second, room, [second.replace(/ nodes?(?= · )/, "")]), x + 15, y + boxHeight / 2 + 13);
    } else if (view.scale >= LABELED && scene.short(i)) {
      context.font = `600 ${Math.min(30, 9.5 / view.scale)}px ${FONT}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillStyle = readable(mixed(color, colors.ground, 0.85));
      context.fillText(fitted(context, scene.short(i), boxWidth - 6, scene.brief?.(i)), x + boxWidth / 2, y + boxHeight / 2 + 1);
    }
    context.globalAlpha = 1;
  }
}
