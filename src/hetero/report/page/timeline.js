// The timeline of a run, measured or predicted: a lane for each thread of each device, bars where subgraphs ran.

const LANE = 54, LEAST_LANE = 28, MOST_LANE = 140, AXIS = 24;

class Timeline {
  constructor(data, choose) {
    Object.assign(this, { data, choose, chosen: -1, current: -1, hovered: -1, marked: null, lane: LANE });
    this.canvas = make("canvas", {
      id: "timeline", tabindex: "0", role: "application",
      "aria-label": "Timeline. Arrow keys go from subgraph to subgraph, plus and minus zoom. The table of subgraphs has the times.",
    });
    this.element = make("div", { class: "lanes" }, this.canvas);
    new ResizeObserver(() => this.fitLanes()).observe(this.element);
    const { spans } = data.run;
    this.order = Array.from(spans.begin.keys()).sort((a, b) => spans.begin[a] - spans.begin[b]);
    this.view = new Viewport(this.canvas, (context) => this.draw(context), { both: false, most: Infinity });
    this.view.resized = () => { if (!this.shown) this.fit(); this.shown = true; };
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { tip.hide(); this.setHovered(-1); });
    this.canvas.addEventListener("click", (event) => {
      if (this.view.moved) return;
      const [span, node] = this.at(event);
      if (span >= 0) this.choose(spans.subgraph[span], node);
    });
    this.canvas.addEventListener("dblclick", () => this.fit());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  get names() { return Math.min(200, this.view.width * 0.25); }

  /** Lanes share the height there is; below what can be read, the pane scrolls. */
  fitLanes() {
    const room = this.element.clientHeight, { length } = this.data.run.lanes;
    if (!room) return;
    this.lane = Math.max(LEAST_LANE, Math.min(MOST_LANE, (room - AXIS - 4) / length));
    this.canvas.style.height = `${Math.max(room, AXIS + this.lane * length + 4)}px`;
    this.view.redraw();
  }

  fit() {
    const { view } = this;
    view.scale = Math.max(1e-12, (view.width - this.names - 24) / this.data.runLength);
    view.least = view.scale * 0.5;
    view.x = this.names + 8;
    view.redraw();
  }

  setChosen(subgraph) {
    this.chosen = subgraph < 0 ? -1 : this.data.togetherWith(subgraph)[0];
    this.current = -1;
    const span = this.data.spanOf.get(this.chosen);
    if (span !== undefined && this.view.width) {
      const { spans } = this.data.run, { view } = this;
      const begin = spans.begin[span] * view.scale + view.x, end = spans.end[span] * view.scale + view.x;
      if (end < this.names || begin > view.width) view.x += (this.names + view.width) / 2 - (begin + end) / 2;
    }
    this.view.redraw();
  }

  setHovered(span) { if (span !== this.hovered) { this.hovered = span; this.view.redraw(); } }

  /** The span at the pointer and, low in its bar, the node; -1 for none. */
  at(event) {
    const { view } = this, { spans } = this.data.run, [x, y] = view.local(event);
    const lane = Math.floor((y - AXIS) / this.lane);
    if (x < this.names || y < AXIS) return [-1, -1];
    let found = -1, least = 5;
    for (let i = 0; i < spans.begin.length; i++) {
      if (spans.lane[i] !== lane) continue;
      const begin = spans.begin[i] * view.scale + view.x, end = spans.end[i] * view.scale + view.x;
      const away = x < begin ? begin - x : x > end ? x - end : -1;
      if (away < least) { least = away; found = i; }
    }
    if (found < 0) return [-1, -1];
    const low = this.lane >= 40 && y - AXIS - lane * this.lane > this.lane * 0.52;
    const node = low ? this.nodesOf(found).find(([, begin, end]) => x >= begin * view.scale + view.x && x <= end * view.scale + view.x) : null;
    return [found, node ? node[0] : -1];
  }

  /** [node, begin, end] of what was counted in a span: one after the other, narrowed to fit. */
  nodesOf(span) {
    const { data } = this, { spans } = data.run;
    const subgraph = spans.subgraph[span];
    if (spans.request[span] !== data.requests - 1) return []; // nodes are counted in the last inference
    const [first, count] = subgraph < 0 ? [0, data.numSubgraphs] : data.togetherWith(subgraph);
    const from = data.firstNode[first], to = data.firstNode[first + count];
    let total = 0;
    for (let node = from; node < to; node++) total += Math.max(0, data.real[node]);
    const scale = total ? Math.min(1, (spans.end[span] - spans.begin[span]) / total) : 1;
    const found = [];
    let at = spans.begin[span];
    for (let node = from; node < to; node++) {
      if (data.real[node] <= 0) continue;
      found.push([node, at, at + data.real[node] * scale]);
      at += data.real[node] * scale;
    }
    return found;
  }

  name(span) {
    const { data } = this, { spans } = data.run, request = data.requests > 1 ? `inference ${spans.request[span] + 1}, ` : "";
    return request + data.runName(spans.subgraph[span]);
  }

  tipOf(span, node) {
    const { data } = this, { spans, lanes } = data.run;
    if (node >= 0) {
      return [elided(data.keys[node], 160), `${data.op(node)}, ${timeText(data.real[node])} (CPU ${timeText(data.cpu[node])})`, data.strings[data.how[node]]];
    }
    const [device, thread] = lanes[spans.lane[span]];
    return [
      `${this.name(span)} on ${data.devices[device]}: ${timeText(spans.end[span] - spans.begin[span])}`,
      `from ${timeText(spans.begin[span])} to ${timeText(spans.end[span])}, ${thread}`,
    ];
  }

  hover(event) {
    if (event.buttons || event.pointerType === "touch") return;
    const [span, node] = this.at(event);
    this.setHovered(span);
    if (span >= 0) tip.show(this.tipOf(span, node), event.clientX, event.clientY);
    else tip.hide();
  }

  key(event) {
    const { spans } = this.data.run;
    const at = this.order.findIndex((span) => span === this.current || (this.current < 0 && spans.subgraph[span] === this.chosen));
    const go = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.order.length - 1 };
    if (event.key in go) {
      const span = this.order[Math.max(0, Math.min(this.order.length - 1, go[event.key]))];
      this.choose(spans.subgraph[span], -1);
      this.current = span;
      say(this.tipOf(span, -1).join(", "));
    } else if (event.key === "+" || event.key === "=") this.view.zoom(1.5);
    else if (event.key === "-") this.view.zoom(1 / 1.5);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  /** Where a span is on the page: for scripts and tests. */
  positionOf(span) {
    const box = this.canvas.getBoundingClientRect(), { spans } = this.data.run, { view } = this;
    const middle = ((spans.begin[span] + spans.end[span]) / 2) * view.scale + view.x;
    return [box.left + middle, box.top + AXIS + spans.lane[span] * this.lane + LANE * 0.3];
  }

  draw(context) {
    const colors = themeColors(), { view, data } = this, { lanes, spans } = data.run;
    context.textBaseline = "middle";
    this.drawAxis(context, colors);
    context.save();
    context.beginPath();
    context.rect(this.names, 0, view.width - this.names, view.height);
    context.clip();
    lanes.forEach((_, lane) => {
      context.fillStyle = colors.raised;
      context.fillRect(this.names, AXIS + lane * this.lane + 3, view.width, this.lane - 6);
    });
    const narrow = new Map(); // bars thinner than a pixel are drawn once per pixel
    for (let i = 0; i < spans.begin.length; i++) {
      const begin = spans.begin[i] * view.scale + view.x, end = spans.end[i] * view.scale + view.x;
      if (end < this.names || begin > view.width) continue;
      if (end - begin < 1 && spans.subgraph[i] !== this.chosen && i !== this.hovered) {
        const key = spans.lane[i] * 1e5 + Math.round(begin);
        if (narrow.has(key)) continue;
        narrow.set(key, true);
      }
      this.drawSpan(context, colors, i, begin, Math.max(1, end - begin));
    }
    this.drawFlows(context, colors);
    context.restore();
    lanes.forEach(([device, thread], lane) => {
      const y = AXIS + lane * this.lane + this.lane / 2;
      context.fillStyle = data.colors[device];
      context.beginPath();
      context.roundRect(10, y - 5 - (this.lane >= 40 ? 8 : 0), 10, 10, 3);
      context.fill();
      context.textAlign = "left";
      context.fillStyle = colors.text;
      context.font = `600 12px ${FONT}`;
      const name = fitted(context, data.devices[device], this.names - 34);
      context.fillText(name, 26, this.lane >= 40 ? y - 8 : y);
      const beside = this.lane >= 40 ? 0 : context.measureText(name).width + 8; // the thread below the name, or after it
      context.fillStyle = colors.faint;
      context.font = `11px ${FONT}`;
      if (this.names - 34 - beside > 30) context.fillText(fitted(context, thread, this.names - 34 - beside), 26 + beside, beside ? y : y + 8);
    });
  }

  drawAxis(context, colors) {
    const { view } = this;
    const rough = 90 / view.scale, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    const first = Math.max(0, Math.ceil((this.names - view.x) / view.scale / step));
    for (let i = first; ; i++) {
      const x = i * step * view.scale + view.x;
      if (x > view.width || i > first + 1000) break;
      context.strokeStyle = colors.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, AXIS - 5);
      context.lineTo(Math.round(x) + 0.5, AXIS + this.data.run.lanes.length * this.lane);
      context.stroke();
      context.fillStyle = colors.faint;
      if (x > this.names + 10 && x < view.width - 24) context.fillText(i ? tickText(i * step, step) : "0", x, 10);
    }
  }

  drawSpan(context, colors, i, x, width) {
    const { data, view } = this, { spans, lanes } = data.run;
    const color = data.colors[lanes[spans.lane[i]][0]], ground = colors.ground;
    const inset = this.lane >= 40 ? 6 : 3;
    const y = AXIS + spans.lane[i] * this.lane + inset, height = this.lane - 2 * inset;
    const chosen = spans.subgraph[i] === this.chosen;
    context.globalAlpha = this.marked && !this.marked.has(spans.subgraph[i]) ? 0.25 : 1;
    context.fillStyle = mixed(color, ground, width < 4 ? 0.9 : data.requests > 1 && spans.request[i] % 2 ? 0.55 : 0.3);
    context.beginPath();
    context.roundRect(x, y, width, height, Math.min(4, width / 3));
    context.fill();
    if (width >= 3) {
      context.strokeStyle = chosen ? colors.accent : i === this.hovered ? colors.text : color;
      context.lineWidth = chosen ? 2.5 : 1;
      context.stroke();
    }
    const left = Math.max(x, this.names), seen = Math.min(x + width, view.width) - left;
    if (seen > 20) {
      context.save();
      context.clip();
      context.textAlign = "left";
      context.fillStyle = readable(context.fillStyle);
      context.font = `600 12px ${FONT}`;
      const own = data.requests > 1 ? spans.request[i] : spans.subgraph[i]; // lanes of a pipeline tell the stages apart
      const number = own < 0 ? "model" : String(own + 1);
      const label = `${number}  ${timeText(spans.end[i] - spans.begin[i])}`;
      const text = [label, number].find((one) => context.measureText(one).width <= seen - 8); // never half a number
      if (text) context.fillText(text, left + 4, y + height * (this.lane >= 40 ? 0.28 : 0.55));
      if (width > 60 && this.lane >= 40) this.drawNodes(context, colors, i, color, y + height * 0.52, height * 0.42);
      context.restore();
    }
    context.globalAlpha = 1;
  }

  drawNodes(context, colors, span, color, y, height) {
    const { view, data } = this;
    let drawnTo = -Infinity;
    context.font = `11px ${FONT}`;
    this.nodesOf(span).forEach(([node, begin, end], i) => {
      const x = begin * view.scale + view.x, width = (end - begin) * view.scale;
      if (x > view.width || x + width < this.names || x + width < drawnTo + 0.5) return;
      drawnTo = x + width;
      context.fillStyle = mixed(color, colors.ground, i % 2 ? 0.75 : 0.6);
      context.fillRect(x, y, Math.max(0.5, width - 0.5), height);
      if (width > 40) {
        context.fillStyle = readable(context.fillStyle);
        context.fillText(fitted(context, data.op(node), width - 8), x + 4, y + height / 2);
      }
    });
  }

  /** Arrows for the boundary values of the subgraph that is chosen or pointed at, within each inference. */
  drawFlows(context, colors) {
    const { data, view } = this, { spans } = data.run;
    const focus = this.hovered >= 0 ? spans.subgraph[this.hovered] : this.chosen;
    if (focus < 0) return;
    const only = this.hovered >= 0 ? spans.request[this.hovered] : -1;
    this.spansOf ??= spans.subgraph.reduce((of, s, span) => of.set(s, [...(of.get(s) ?? []), span]), new Map());
    context.strokeStyle = context.fillStyle = colors.accent;
    context.lineWidth = 1.5;
    for (const link of data.links) {
      const from = data.togetherWith(link.from)[0], to = data.togetherWith(link.to)[0];
      if (from === to || (from !== focus && to !== focus)) continue;
      for (const one of this.spansOf.get(from) ?? []) {
        const other = this.spansOf.get(to)?.find((span) => spans.request[span] === spans.request[one]);
        if (other === undefined || (only >= 0 && spans.request[one] !== only)) continue;
        const x1 = spans.end[one] * view.scale + view.x, x2 = spans.begin[other] * view.scale + view.x;
        const y1 = AXIS + (spans.lane[one] + 0.5) * this.lane, y2 = AXIS + (spans.lane[other] + 0.5) * this.lane;
        const bend = Math.max(12, Math.abs(x2 - x1) * 0.3);
        context.beginPath();
        context.moveTo(x1, y1);
        context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
        context.stroke();
        context.beginPath();
        context.moveTo(x2, y2);
        context.lineTo(x2 - 7, y2 - 4);
        context.lineTo(x2 - 7, y2 + 4);
        context.fill();
      }
    }
  }
}

/** A tick's time, with as many digits as tell it from the next. */
function tickText(time, step) {
  const [unit, length] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, size]) => time >= size) ?? ["ns", 1];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / length) - 1e-9));
  return `${(time / length).toFixed(Math.min(digits, 6))} ${unit}`;
}
