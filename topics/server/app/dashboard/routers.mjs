// Routers as a graph: topics are boxes, in columns by how far they are from a source; a router is an arrow. Below it the
// same as a table.
import { beginning, count, el, emptyRow, named, put, renew, row, short, svg, table } from "./dom.mjs"
import { call, poll } from "./api.mjs"
import { ending } from "./ending.mjs"
import { Figures } from "./figures.mjs"
import { routing } from "./routing.mjs"

const LIST_MS = 3000, ROUTERS_MAX = 200
const COLUMNS = [["Router", "name"], ["From", "name"], ["To", "name"], ["Guarantee", "wide"], ["Forwarded", "n wide"], ["Behind", "n"]]
const BOX = { width: 190, height: 30, across: 290, down: 52, indent: 26 }
const NARROW = matchMedia("(max-width: 44rem)") // as the style sheet has it

export function routers(part) {
  if (part === "new") return routing()
  const graph = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Graph of routers" }), body = el("tbody"), more = el("p", { class: "quiet" })
  const said = el("p", { role: "status" })
  let prefix = "", drawn = null, look = async () => {}
  const search = beginning("Routers", (typed) => { prefix = typed; look().catch(() => {}) })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Routers"), el("div", { class: "bar" }, search, el("a", { class: "button", href: "#/routers/new" }, "New router"), said), more, graph, table("Routers", COLUMNS, body))
  const start = (signal) => {
    const end = ({ router, source, dest }) => ending("router", router, () => `Remove the router ${router}? What was copied from ${source} stays in ${dest}, and nothing more is copied by it.`, said, async () => {
      const { deleted } = await call("end_router", { params: { router }, signal })
      look().catch(() => {})
      return deleted
    })
    look = async () => {
      const asked = prefix
      const [{ routers: found, next_cursor: next }, figures] = await Promise.all([call("routers", { query: { prefix, page_size: ROUTERS_MAX }, signal }), Figures.look(signal)])
      if (asked !== prefix) return // others are wanted by now
      const behind = figures.by("topics_router_lag", "router")
      put(more, next ? `The first ${ROUTERS_MAX} of them.` : "")
      if (found.length > 0) renew(body, found.map((one) => [`${one.router} ${one.source} ${one.dest}`, row(COLUMNS,
        named(one.router, end(one)), link(one.source), link(one.dest), one.guarantee, count(one.forwarded_total), behind.has(one.router) ? count(behind.get(one.router)) : "")]))
      else put(body, emptyRow(COLUMNS, prefix ? "No router begins so." : ["There are no routers. ", el("a", { href: "#/routers/new" }, "Make the first")]))
      const shape = JSON.stringify([NARROW.matches, ...found.map(({ router, source, dest }) => [router, source, dest])])
      if (shape !== drawn) put(graph, found.length > 0 && drawing(found, NARROW.matches))
      drawn = shape
    }
    poll(signal, LIST_MS, () => look())
  }
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

// In columns from left to right; where the screen is narrow one below the other, each as far in as its column is.
function drawing(routers, isNarrow) {
  const columns = columnsOf(routers)
  const at = isNarrow ? listed(routers, columns) : sideBySide(columns)
  const boxes = [...at.values()], right = Math.max(...boxes.map(({ x }) => x)) + BOX.width
  const width = 10 + right + (isNarrow ? BOX.indent * 2 : 0), height = 40 + Math.max(...boxes.map(({ y }) => y)) + BOX.height // arrows that go back are beside or below
  const title = `${routers.length} routers between ${at.size} topics; the table below has them`
  return svg("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
    routers.map((one) => arrow(one, isNarrow ? bent : curved, at.get(one.source), at.get(one.dest))),
    [...at].map(([name, { x, y }]) => svg("a", { href: `#/topics/${encodeURIComponent(name)}/live` },
      svg("title", {}, name), svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 4 }),
      svg("text", { x: x + 8, y: y + 20 }, short(name, 24)))))
}

function sideBySide(columns) {
  const at = new Map(), heights = []
  const used = [...new Set(columns.values())].sort((a, b) => a - b)
  for (const [name, column] of columns) {
    const x = used.indexOf(column), y = (heights[x] ??= 0)
    heights[x]++
    at.set(name, { x: 10 + x * BOX.across, y: 10 + y * BOX.down })
  }
  return at
}

// What a topic feeds stands below it.
function listed(routers, columns) {
  const at = new Map()
  function place(name) {
    if (at.has(name)) return
    at.set(name, { x: 10 + columns.get(name) * BOX.indent, y: 10 + at.size * (BOX.height + 12) })
    for (const { source, dest } of routers) if (source === name && columns.get(dest) > columns.get(name)) place(dest)
  }
  for (const [name, column] of columns) if (column === 0) place(name)
  for (const name of columns.keys()) place(name)
  return at
}

function arrow({ router, source, dest }, route, from, to) {
  const { path, tip } = route(from, to)
  return svg("g", {}, svg("title", {}, `${router}: ${source} to ${dest}`), svg("path", { d: path }), svg("path", { class: "tip", d: tip }))
}

function curved(from, to) {
  const isBack = to.x <= from.x
  const x1 = from.x + (isBack ? BOX.width / 2 : BOX.width), y1 = from.y + (isBack ? BOX.height : BOX.height / 2)
  const x2 = to.x + (isBack ? BOX.width / 2 : 0), y2 = to.y + (isBack ? BOX.height : BOX.height / 2)
  if (isBack) return { path: `M${x1},${y1} C${x1},${y1 + 40} ${x2},${y2 + 40} ${x2},${y2 + 6}`, tip: `M${x2},${y2} l-4,8 h8 z` }
  return { path: `M${x1},${y1} C${x1 + 50},${y1} ${x2 - 50},${y2} ${x2 - 6},${y2}`, tip: `M${x2},${y2} l-8,-4 v8 z` }
}

// Down from the source's left and to the right; back around the right ends.
function bent(from, to) {
  const y = to.y + BOX.height / 2
  if (to.x > from.x) return { path: `M${from.x + BOX.indent / 2},${from.y + BOX.height / 2} V${y} H${to.x - 6}`, tip: `M${to.x},${y} l-8,-4 v8 z` }
  const x1 = from.x + BOX.width, x2 = to.x + BOX.width, outer = Math.max(x1, x2) + BOX.indent
  return { path: `M${x1},${from.y + BOX.height / 2} H${outer} V${y} H${x2 + 6}`, tip: `M${x2},${y} l8,-4 v8 z` }
}
