// Routers as a graph: topics are boxes, in columns by how far they are from a source; a router is an arrow. Below it the
// same as a table.
import { count, el, put, row, short, svg, table } from "./dom.mjs"
import { call, has, poll } from "./api.mjs"

const LIST_MS = 3000, ROUTERS_MAX = 200
const COLUMNS = [["Router"], ["From"], ["To"], ["Guarantee", "wide"], ["Forwarded", "n"]]
const BOX = { width: 190, height: 30, across: 290, down: 52 }

export function routers() {
  const graph = el("div", { class: "scroll" }), body = el("tbody"), more = el("p", { class: "quiet" })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Routers"), more, graph, table("Routers", COLUMNS, body))
  let drawn = null
  const start = (signal) => poll(signal, LIST_MS, async () => {
    if (!(await has("routers"))) return
    const { routers: found, next_cursor: next } = await call("routers", { query: { page_size: ROUTERS_MAX }, signal })
    put(more, next ? `The first ${ROUTERS_MAX} of them.` : found.length === 0 ? "There are no routers." : "")
    put(body, found.map((one) => row(COLUMNS, el("span", { class: "data" }, one.router), link(one.source), link(one.dest), one.guarantee, count(one.forwarded_total ?? 0))))
    const shape = JSON.stringify(found.map(({ router, source, dest }) => [router, source, dest]))
    if (shape !== drawn) put(graph, found.length > 0 && drawing(found))
    drawn = shape
  })
  return { title: "Routers", element, start }
}

function link(topic) {
  return el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/live` }, topic)
}

// How many arrows a topic is behind those that nothing leads to. An arrow that closes a cycle does not count.
export function columnsOf(routers) {
  const next = new Map(), column = new Map(), path = new Set()
  for (const { source, dest } of routers) next.set(source, [...(next.get(source) ?? []), dest])
  function place(name, at) {
    if (path.has(name) || at <= (column.get(name) ?? -1)) return
    column.set(name, at)
    path.add(name)
    for (const dest of next.get(name) ?? []) place(dest, at + 1)
    path.delete(name)
  }
  const fed = new Set(routers.map(({ dest }) => dest))
  const sources = [...next.keys()].sort()
  for (const name of sources.filter((one) => !fed.has(one))) place(name, 0)
  for (const name of sources.filter((one) => !column.has(one))) place(name, 0)
  return column
}

function drawing(routers) {
  const at = new Map(), heights = []
  const columns = columnsOf(routers)
  const used = [...new Set(columns.values())].sort((a, b) => a - b)
  for (const [name, column] of columns) {
    const x = used.indexOf(column), y = (heights[x] ??= 0)
    heights[x]++
    at.set(name, { x: 10 + x * BOX.across, y: 10 + y * BOX.down })
  }
  const width = 20 + (used.length - 1) * BOX.across + BOX.width, height = 20 + Math.max(...heights) * BOX.down
  const title = `${routers.length} routers between ${at.size} topics; the table below has them`
  return svg("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    routers.map((one) => arrow(one, at.get(one.source), at.get(one.dest))),
    [...at].map(([name, { x, y }]) => svg("a", { href: `#/topics/${encodeURIComponent(name)}/live` },
      svg("title", {}, name), svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 4 }),
      svg("text", { x: x + 8, y: y + 20 }, short(name, 24)))))
}

function arrow({ router, source, dest }, from, to) {
  const isBack = to.x <= from.x
  const x1 = from.x + (isBack ? BOX.width / 2 : BOX.width), y1 = from.y + (isBack ? BOX.height : BOX.height / 2)
  const x2 = to.x + (isBack ? BOX.width / 2 : 0), y2 = to.y + (isBack ? BOX.height : BOX.height / 2)
  const path = isBack ? `M${x1},${y1} C${x1},${y1 + 40} ${x2},${y2 + 40} ${x2},${y2 + 6}` : `M${x1},${y1} C${x1 + 50},${y1} ${x2 - 50},${y2} ${x2 - 6},${y2}`
  const tip = isBack ? `M${x2},${y2} l-4,8 h8 z` : `M${x2},${y2} l-8,-4 v8 z`
  return svg("g", {}, svg("title", {}, `${router}: ${source} to ${dest}`), svg("path", { d: path }), svg("path", { class: "tip", d: tip }))
}
