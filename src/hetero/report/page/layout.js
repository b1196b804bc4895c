// Layered drawing of an acyclic graph, top to bottom (Sugiyama, Tagawa and Toda, 1981).
//
// 1. A vertex's layer is its longest path from a source; sources move down to their first reader.
// 2. Edges over several layers get a dummy in each layer between, as long as there are not too many.
// 3. Vertices of a layer are ordered by the mean place of their neighbors, sweeping down and up; the order with the
//    fewest crossings is kept.
// 4. Places across: each sweep moves vertices as close to the mean of their neighbors as order and distance allow,
//    which is isotonic regression (pool adjacent violators), so one pass per layer.
// 5. Long drawings are folded into columns like a newspaper's, so that they fill the window.
//
// All of it is linear in vertices, dummies and edges, but for sorting within layers.

const GAP_X = 26, GAP_Y = 34, GUTTER = 46;

/**
 * Places of vertices 0..count-1 of one size, and the course of edges. from[i] < to[i] for each edge.
 *
 * canvas: {width, height, least}, the size to fill when folding. If the whole would be drawn below the scale `least`, the
 * drawing is as wide as the canvas at that scale, and higher. Gives x, y (centers), width and height of the whole, and
 * courses: per edge the points that it passes, as [x, y, x, y, …], and whether it changes columns.
 */
function layered(count, from, to, boxWidth, boxHeight, canvas) {
  const edges = from.length;
  const layer = layersOf(count, from, to);
  const { layerOf, rows, chains, total } = withDummies(count, from, to, layer);
  const { above, below } = neighbors(total, chains);
  order(rows, layerOf, above, below, total);
  const across = placesAcross(rows, above, below, total, count, boxWidth);
  const { columnOf, offset, top, edge, width, height } = folded(rows, across, count, boxWidth, boxHeight, canvas, passing(rows.length, chains, layerOf));
  const x = new Float64Array(total), y = new Float64Array(total);
  for (let v = 0; v < total; v++) {
    const column = columnOf[layerOf[v]];
    x[v] = across[v] + offset[column];
    y[v] = (layerOf[v] - top[column]) * (boxHeight + GAP_Y) + boxHeight / 2;
  }
  const ports = portsOf(count, chains, x, boxWidth);
  const courses = new Array(edges);
  const jumps = new Map();
  for (let e = 0; e < edges; e++) {
    courses[e] = course(chains[e], ports[e], { x, y, layerOf, columnOf, edge, boxHeight, height, jumps });
  }
  return { x: x.subarray(0, count), y: y.subarray(0, count), layerOf, rows, width, height, courses, count };
}

function layersOf(count, from, to) {
  const layer = new Int32Array(count), first = new Int32Array(count).fill(-1), reads = new Uint8Array(count);
  const sorted = Array.from(from.keys()).sort((a, b) => from[a] - from[b]);
  for (const e of sorted) {
    layer[to[e]] = Math.max(layer[to[e]], layer[from[e]] + 1);
    reads[to[e]] = 1;
  }
  for (const e of sorted) {
    const v = from[e];
    first[v] = first[v] < 0 ? layer[to[e]] : Math.min(first[v], layer[to[e]]);
  }
  for (let v = 0; v < count; v++) if (!reads[v] && first[v] > 0) layer[v] = first[v] - 1;
  return layer;
}

/** Dummies are numbered from count on; chains[e] lists the vertices of edge e, its dummies between. */
function withDummies(count, from, to, layer) {
  const most = 4 * count + 2000;
  const layerOf = Array.from(layer);
  const chains = new Array(from.length);
  const bySpan = Array.from(from.keys()).sort((a, b) => layer[to[a]] - layer[from[a]] - (layer[to[b]] - layer[from[b]]));
  let dummies = 0;
  for (const e of bySpan) {
    const span = layer[to[e]] - layer[from[e]];
    const chain = [from[e]];
    if (dummies + span - 1 <= most) {
      for (let between = 1; between < span; between++) {
        chain.push(layerOf.length);
        layerOf.push(layer[from[e]] + between);
        dummies++;
      }
    }
    chain.push(to[e]);
    chains[e] = chain;
  }
  const depth = layerOf.reduce((most, at) => Math.max(most, at + 1), 0);
  const rows = Array.from({ length: depth }, () => []);
  layerOf.forEach((at, v) => rows[at].push(v));
  return { layerOf, rows, chains, total: layerOf.length };
}

/** Rows of neighbors in the layer above and below; edges without dummies over several layers do not count. */
function neighbors(total, chains) {
  const above = Array.from({ length: total }, () => []), below = Array.from({ length: total }, () => []);
  for (const chain of chains) {
    for (let i = 1; i < chain.length; i++) {
      above[chain[i]].push(chain[i - 1]);
      below[chain[i - 1]].push(chain[i]);
    }
  }
  return { above, below };
}

/** Orders each row in place. */
function order(rows, layerOf, above, below, total) {
  const place = new Float64Array(total);
  const number = () => { for (const row of rows) row.forEach((v, i) => { place[v] = i; }); };
  const mean = (v, near) => {
    if (!near.length) return place[v];
    let sum = 0;
    for (const other of near) sum += place[other];
    return sum / near.length;
  };
  const sweep = (row, side) => {
    const wish = new Map(row.map((v) => [v, mean(v, side[v])]));
    row.sort((a, b) => wish.get(a) - wish.get(b) || place[a] - place[b]);
    row.forEach((v, i) => { place[v] = i; });
  };
  number();
  const small = total <= 4000;
  let best = small ? rows.map((row) => row.slice()) : null, fewest = small ? crossings(rows, below, place) : 0;
  const rounds = total > 40000 ? 3 : total > 4000 ? 6 : 12;
  for (let round = 0; round < rounds && (!small || fewest > 0); round++) {
    for (let i = 1; i < rows.length; i++) sweep(rows[i], above);
    for (let i = rows.length - 2; i >= 0; i--) sweep(rows[i], below);
    if (!small) continue;
    const found = crossings(rows, below, place);
    if (found < fewest) { fewest = found; best = rows.map((row) => row.slice()); }
  }
  if (small) best.forEach((row, i) => { rows[i] = row; });
}

/** Pairs of edges that cross, counted layer by layer with a Fenwick tree. */
function crossings(rows, below, place) {
  let crossed = 0;
  for (let i = 0; i + 1 < rows.length; i++) {
    const size = rows[i + 1].length, tree = new Int32Array(size + 1);
    let seen = 0;
    for (const v of rows[i]) {
      const ends = below[v].map((w) => place[w]).filter((end) => end < size);
      for (const end of ends) {
        let before = 0;
        for (let at = end + 1; at > 0; at -= at & -at) before += tree[at];
        crossed += seen - before;
      }
      for (const end of ends) {
        for (let at = end + 1; at <= size; at += at & -at) tree[at]++;
        seen++;
      }
    }
  }
  return crossed;
}

/** The coordinate of each vertex across the layers. */
function placesAcross(rows, above, below, total, count, boxWidth) {
  const x = new Float64Array(total);
  const half = (v) => (v < count ? boxWidth / 2 : 4);
  const distance = (a, b) => half(a) + half(b) + (a < count && b < count ? GAP_X : 12);
  for (const row of rows) {
    let at = 0;
    row.forEach((v, i) => { if (i) at += distance(row[i - 1], v); x[v] = at; });
    for (const v of row) x[v] -= at / 2;
  }
  const settle = (row, near, far) => {
    // As close as can be to what each wishes, in this order and at these distances.
    const blocks = [], wishes = [];
    let shift = 0;
    row.forEach((v, i) => {
      if (i) shift += distance(row[i - 1], v);
      let sum = 0, weight = 0;
      for (const [side, scale] of [[near[v], 1], [far ? far[v] : [], 0.5]]) {
        for (const other of side) {
          const strength = scale * (v >= count && other >= count ? 8 : v >= count || other >= count ? 2 : 1);
          sum += x[other] * strength;
          weight += strength;
        }
      }
      // What has no neighbor at all stands beside the one before it; what has none on this side stays.
      const alone = !weight && !above[v].length && !below[v].length;
      if (alone) wishes.push(null);
      else wishes.push(weight ? [sum / weight - shift, weight] : [x[v] - shift, 0.01]);
    });
    const first = wishes.find(Boolean) ?? [0, 1];
    row.forEach((v, i) => {
      const [wish, weight] = wishes[i] ??= [(wishes[i - 1] ?? first)[0], 1e-6];
      let block = { sum: wish * weight, weight, size: 1 };
      while (blocks.length && blocks.at(-1).sum / blocks.at(-1).weight >= block.sum / block.weight) {
        const before = blocks.pop();
        block = { sum: before.sum + block.sum, weight: before.weight + block.weight, size: before.size + block.size };
      }
      blocks.push(block);
    });
    let next = 0, moved = 0;
    for (const block of blocks) {
      for (let i = 0; i < block.size; i++, next++) {
        if (next) moved += distance(row[next - 1], row[next]);
        x[row[next]] = block.sum / block.weight + moved;
      }
    }
  };
  const rounds = total > 40000 ? 4 : 10;
  for (let round = 0; round < rounds; round++) {
    for (let i = 1; i < rows.length; i++) settle(rows[i], above, null);
    for (let i = rows.length - 2; i >= 0; i--) settle(rows[i], below, null);
  }
  for (let i = 0; i < rows.length; i++) settle(rows[i], above, below);
  return x;
}

/** How many edges pass between each layer and the next. */
function passing(depth, chains, layerOf) {
  const change = new Int32Array(depth + 1);
  for (const chain of chains) {
    change[layerOf[chain[0]]]++;
    change[layerOf[chain.at(-1)]]--;
  }
  for (let i = 1; i < depth; i++) change[i] += change[i - 1];
  return change;
}

/** Cuts the layers into columns, where few edges pass, if that fills the window better. */
function folded(rows, across, count, boxWidth, boxHeight, canvas, passes) {
  const depth = rows.length, pitch = boxHeight + GAP_Y;
  const low = new Float64Array(depth).fill(Infinity), high = new Float64Array(depth).fill(-Infinity);
  rows.forEach((row, i) => {
    for (const v of row) {
      const half = v < count ? boxWidth / 2 : 4;
      low[i] = Math.min(low[i], across[v] - half);
      high[i] = Math.max(high[i], across[v] + half);
    }
  });
  const cut = (columns) => {
    const length = Math.ceil(depth / columns), offset = [], top = [], edge = [], columnOf = new Int32Array(depth);
    let width = 0;
    for (let first = 0, last, column = 0; first < depth; first = last, column++) {
      last = Math.min(depth, first + length);
      if (last < depth) {
        for (let i = last - 1; i > first + 0.7 * length; i--) if (passes[i - 1] < passes[last - 1]) last = i;
      }
      let left = Infinity, right = -Infinity;
      for (let i = first; i < last; i++) {
        columnOf[i] = column;
        left = Math.min(left, low[i]);
        right = Math.max(right, high[i]);
      }
      if (column) width += GUTTER;
      offset.push(width - left);
      edge.push(width);
      top.push(first);
      width += right - left;
    }
    return { columnOf, offset, top, edge, width: Math.max(width, boxWidth), height: Math.min(length, depth) * pitch - GAP_Y, columns: offset.length };
  };
  if (!depth) return { columnOf: [], offset: [], top: [], edge: [], width: boxWidth, height: boxHeight };
  let best = cut(1);
  if (depth < 8) return best;
  const scale = (cutting) => Math.min((canvas.width - 40) / cutting.width, (canvas.height - 40) / cutting.height);
  const alone = scale(best);
  let narrow = best;
  for (let columns = 2; columns <= Math.min(depth / 3, 160); columns = Math.max(columns + 1, Math.round(columns * 1.08))) {
    const cutting = cut(columns);
    if (scale(cutting) > scale(best) * 1.02) best = cutting;
    if (cutting.width * canvas.least <= canvas.width - 40) narrow = cutting;
  }
  if (scale(best) < canvas.least) return narrow;
  return scale(best) > 1.25 * alone ? best : cut(1);
}

/** Where each edge leaves and enters: side by side, in the order in which they go on. */
function portsOf(count, chains, x, boxWidth) {
  const ports = chains.map((chain) => [x[chain[0]], x[chain.at(-1)]]);
  const out = Array.from({ length: count }, () => []), into = Array.from({ length: count }, () => []);
  chains.forEach((chain, e) => { out[chain[0]].push(e); into[chain.at(-1)].push(e); });
  const spread = (list, end, next) => {
    if (list.length < 2) return;
    list.sort((a, b) => x[next(chains[a])] - x[next(chains[b])]);
    const step = Math.min(16, (0.8 * boxWidth) / list.length);
    list.forEach((e, i) => { ports[e][end] += (i - (list.length - 1) / 2) * step; });
  };
  for (let v = 0; v < count; v++) {
    spread(out[v], 0, (chain) => chain[1]);
    spread(into[v], 1, (chain) => chain.at(-2));
  }
  return ports;
}

/** The points of one edge. Points of a change of columns come in groups of four, which `jumps` marks. */
function course(chain, [start, end], drawing) {
  const { x, y, layerOf, columnOf, edge, boxHeight, height, jumps } = drawing;
  const points = [], turns = [];
  const last = chain.length - 1;
  chain.forEach((v, i) => {
    const at = i === 0 ? start : i === last ? end : x[v];
    const near = i === 0 ? y[v] + boxHeight / 2 : i === last ? y[v] - boxHeight / 2 : y[v];
    const column = columnOf[layerOf[v]];
    if (i && column !== columnOf[layerOf[chain[i - 1]]]) {
      // Down, through the gutter before the column, up, and in from above.
      const before = points.length;
      const [fromX, fromY] = [points[before - 2], points[before - 1]];
      const used = jumps.get(column) ?? 0;
      jumps.set(column, used + 1);
      const gutter = edge[column] - GUTTER / 2 + ((used % 7) - 3) * 4;
      const deep = Math.min(fromY + 10 + (used % 4) * 3, height + 16);
      const lift = near - 10 - (used % 4) * 3;
      turns.push(points.length / 2);
      points.push(fromX, deep, gutter, deep, gutter, lift, at, lift);
    }
    points.push(at, near);
  });
  return { points, turns };
}
