// A canvas that can be moved and zoomed, and boxes and edges drawn on it.

/** Pan and zoom of a canvas by pointer, wheel and calls. draw(context, view) is called once a frame when needed. */
class Viewport {
  constructor(canvas, draw, { both = true, most = 2.5 } = {}) {
    Object.assign(this, { canvas, both, most, x: 0, y: 0, scale: 1, width: 0, height: 0, least: 0.001, moved: false });
    this.redraw = perFrame(() => {
      const context = canvas.getContext("2d");
      const ratio = devicePixelRatio || 1;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, this.width, this.height);
      draw(context, this);
    });
    this.resized = () => {};
    new ResizeObserver(() => this.fitCanvas()).observe(canvas);
    this.listen();
  }

  fitCanvas() {
    const { clientWidth: width, clientHeight: height } = this.canvas, ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.resized();
    this.redraw();
  }

  listen() {
    const { canvas } = this, pointers = new Map(); // one drags, two also zoom
    const spread = () => {
      const [[x1, y1], [x2, y2] = [x1, y1]] = [...pointers.values()];
      return [(x1 + x2) / 2, (y1 + y2) / 2, Math.hypot(x2 - x1, y2 - y1)];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!pointers.size) this.moved = false;
      pointers.set(event.pointerId, this.local(event));
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!pointers.has(event.pointerId)) return;
      const [x, y, length] = spread(), [px, py] = pointers.get(event.pointerId), here = this.local(event);
      if (!this.moved && Math.hypot(here[0] - px, here[1] - py) < 4) return;
      this.moved = true;
      pointers.set(event.pointerId, here);
      const [nx, ny, wide] = spread();
      this.pan(nx - x, ny - y);
      if (pointers.size === 2 && length > 8) this.zoomAt(nx, ny, wide / length);
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = this.local(event);
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(-(event.deltaX || event.deltaY), 0);
      else this.zoomAt(x, y, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
    }, { passive: false });
  }

  local(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  pan(dx, dy) { this.x += dx; if (this.both) this.y += dy; this.redraw(); }

  zoomAt(x, y, factor) {
    const scale = Math.min(Math.max(this.scale * factor, this.least), this.most);
    const change = scale / this.scale;
    this.x = x - (x - this.x) * change;
    if (this.both) this.y = y - (y - this.y) * change;
    this.scale = scale;
    this.redraw();
  }

  zoom(factor) { this.zoomAt(this.width / 2, this.height / 2, factor); }

  /** The scale at which a drawing is as wide as the canvas. */
  widthScale(width, margin = 20) { return (this.width - 2 * margin) / width; }

  /** Puts a point of the drawing on a point of the canvas. */
  place(x, y, onX, onY) {
    this.x = onX - x * this.scale;
    this.y = onY - y * this.scale;
    this.redraw();
  }

  /** Shows all of a drawing of that size. */
  fit(width, height, margin = 20) {
    const scale = Math.min(this.widthScale(width, margin), (this.height - 2 * margin) / height, 1.25);
    this.scale = Math.max(scale, 1e-4);
    this.least = Math.min(this.scale / 2, 0.2);
    this.place(width / 2, height / 2, this.width / 2, this.height / 2);
  }

  /** Moves the least that brings a point of the drawing well inside, zooming in if it would be too small to see. */
  reveal(x, y, smallest) {
    if (this.scale < smallest) {
      this.scale = smallest;
      this.place(x, y, this.width / 2, this.height / 2);
    }
    const inside = (at, size, margin) => Math.min(Math.max(at, margin), Math.max(margin, size - margin));
    const sx = x * this.scale + this.x, sy = y * this.scale + this.y;
    this.x += inside(sx, this.width, 110) - sx;
    this.y += inside(sy, this.height, 60) - sy;
    this.redraw();
  }

  toDrawing(x, y) { return [(x - this.x) / this.scale, (y - this.y) / this.scale]; }
  toScreen(x, y) { return [x * this.scale + this.x, y * this.scale + this.y]; }
}

/** Adds the course of an edge to the path, as smooth as the scale lets one see. */
function trace(context, course, smooth) {
  const { points, turns } = course;
  context.moveTo(points[0], points[1]);
  let turn = 0;
  for (let i = 2; i < points.length; i += 2) {
    const x = points[i], y = points[i + 1];
    if (turns.length > turn && turns[turn] === i / 2) {
      // Four corners of a change of columns, rounded, then on to the point after them.
      const corner = (at) => [points[i + 2 * at], points[i + 2 * at + 1]];
      for (let at = 0; at < 4; at++) {
        if (smooth) context.arcTo(...corner(at), ...corner(at + 1), 6);
        else context.lineTo(...corner(at));
      }
      i += 8;
      context.lineTo(points[i], points[i + 1]);
      turn++;
      continue;
    }
    const px = points[i - 2], py = points[i - 1], half = (y - py) / 2;
    if (smooth && x !== px) context.bezierCurveTo(px, py + half, x, y - half, x, y);
    else context.lineTo(x, y);
  }
}

/** An arrow head that points down to where the course ends, or up to where one starts that leads back. */
function arrow(context, { points, back }, size) {
  const [x, y] = points.slice(...(back ? [0, 2] : [-2])), from = back ? y + size : y - size;
  context.moveTo(x, y);
  context.lineTo(x - size * 0.6, from);
  context.lineTo(x + size * 0.6, from);
  context.closePath();
}

/** The least distance of a point from a course, by its corner points. */
function distanceTo(course, x, y) {
  const { points } = course;
  let least = Infinity;
  for (let i = 2; i < points.length; i += 2) {
    const [ax, ay, bx, by] = [points[i - 2], points[i - 1], points[i], points[i + 1]];
    const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
    const along = Math.min(1, Math.max(0, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length));
    // Between two layers it is an S: halfway along the curve lies on the straight line, and is close to it elsewhere.
    least = Math.min(least, Math.hypot(ax + along * (bx - ax) - x, ay + along * (by - ay) - y));
  }
  return least;
}

/** Text cut to a width, the middle left out; measured once per text and width. The first of the brief texts that
 *  fits replaces it, or else the last one is cut. */
const fitting = new Map();
function fitted(context, text, width, briefs = []) {
  const key = `${context.font}|${Math.round(width)}|${text}`;
  let found = fitting.get(key);
  if (found === undefined) {
    const texts = [text, ...briefs];
    found = texts.find((one) => context.measureText(one).width <= width) ?? texts[texts.length - 1];
    text = found;
    let most = text.length;
    while (most > 2 && context.measureText(found).width > width) {
      most = Math.max(2, Math.min(most - 1, Math.floor((most * width) / context.measureText(found).width)));
      found = elided(text, most);
    }
    if (fitting.size > 20000) fitting.clear();
    fitting.set(key, found);
  }
  return found;
}
