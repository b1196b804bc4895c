// Groups of nodes by the scopes in their names, such as "/encoder/layer.0/MatMul".

const MOST_BOXES = 400; // nodes that are drawn one by one
const ENOUGH_GROUPS = 40; // the largest groups are opened up to that many
const MOST_GROUPS = 120;

/** The parts of a name: scopes, then the node's own. Names without "/" are parted at ".". Names are not trusted. */
function partsOf(name) {
  return name.slice(0, 2000).split(name.includes("/") ? "/" : ".", 40).filter(Boolean);
}

/** Nodes in groups of {scope, nodes}: a scope, a single node (scope null), or a run of them from first to last. */
function grouping(data, nodes) {
  const parts = new Map(Array.from(nodes, (node) => [node, partsOf(data.keys[node])]));
  let groups = children({ depth: 0, nodes: Array.from(nodes) }, parts);
  while (groups.length < ENOUGH_GROUPS) {
    const largest = groups.reduce((most, group) => (group.nodes.length > most.nodes.length ? group : most), groups[0]);
    if (largest.nodes.length < 2) break;
    const inside = children(largest, parts);
    const most = MOST_GROUPS - groups.length + 1;
    const isTooMany = inside.length > most;
    // A scope with most of the nodes, such as "model", is opened in any case: closed, it is nearly all that is drawn.
    if (isTooMany && (groups.length > MOST_GROUPS / 2 || largest.nodes.length < 0.9 * nodes.length)) break;
    groups.splice(groups.indexOf(largest), 1, ...(isTooMany ? runs(inside, most) : inside));
    if (isTooMany) break;
  }
  if (groups.length > MOST_GROUPS) groups = runs(groups, MOST_GROUPS);
  return groups.map((group) => ({ ...group, nodes: Int32Array.from(group.nodes).sort() }));
}

/** The scopes and nodes one level down; a level that all nodes share is passed. Nodes that share a name stand alone. */
function children({ depth, nodes }, parts) {
  for (;;) {
    const found = new Map();
    for (const node of nodes) {
      const path = parts.get(node);
      const key = depth < path.length - 1 ? `/${path[depth]}` : node;
      if (!found.has(key)) found.set(key, { scope: key === node ? null : path.slice(0, depth + 1), depth: depth + 1, nodes: [] });
      found.get(key).nodes.push(node);
    }
    if (found.size !== 1 || nodes.length === 1) return [...found.values()];
    depth++;
  }
}

/** At most so many groups: neighbors in running order are put together. */
function runs(groups, most) {
  const least = Math.ceil(groups.length / most);
  const size = [1, 2, 5].flatMap((digit) => [1, 10, 100, 1e3, 1e4, 1e5, 1e6].map((power) => digit * power)).sort((a, b) => a - b).find((one) => one >= least);
  const result = [];
  for (let at = 0; at < groups.length; at += size) {
    const some = groups.slice(at, at + size);
    result.push({ first: some[0], last: some.at(-1), nodes: some.flatMap((group) => group.nodes) });
  }
  return result;
}
