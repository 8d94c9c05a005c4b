// Charts over time by uPlot, in the colours of the style sheet; small ones of a table's row as an SVG line.
import uPlot from "./uplot/uPlot.esm.js"
import { el, moment, svg } from "./dom.mjs"

const POINTS_MAX = 720, SPAN_S = 120, HEIGHT = 150

// What was seen of some figures while the page was open: times in seconds, then a list of values a series.
export class History {
  constructor(series) {
    this.columns = [[], ...Array.from({ length: series }, () => [])]
  }

  push(...values) {
    const now = Date.now() / 1000
    const last = this.columns[0].at(-1)
    if (last !== undefined && now - last > 60) this.#add(last + 1, values.map(() => null)) // nobody looked meanwhile
    this.#add(now, values)
  }

  #add(at, values) {
    for (const [i, value] of [at, ...values].entries()) {
      this.columns[i].push(value)
      if (this.columns[i].length > POINTS_MAX) this.columns[i].shift()
    }
  }
}

// An element that draws a history. `series`: [what it is, the CSS variable of its colour]; `format`: of a value; `least`: what
// the axis reaches at least; `incrs`: steps that it may have.
export function chart(title, history, series, { format, least, incrs }, signal) {
  const box = el("div", { class: "plot" })
  const figure = el("figure", { "aria-label": title }, el("figcaption", {}, title), box)
  const told = (value) => (value === null || value === undefined ? "–" : format(value))
  let plot = null
  const colours = matchMedia("(prefers-color-scheme: dark)")
  const sizes = new ResizeObserver(() => plot?.setSize({ width: box.clientWidth, height: HEIGHT }))

  function make() {
    plot?.destroy()
    const style = getComputedStyle(document.documentElement)
    const ink = style.getPropertyValue("--quiet"), grid = { stroke: style.getPropertyValue("--line"), width: 1 }
    const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui, sans-serif" }
    plot = new uPlot({
      width: box.clientWidth || 600, height: HEIGHT, legend: { live: true }, cursor: { drag: { x: false, y: false } },
      scales: {
        x: { range: () => span(history.columns[0]) },
        y: { range: (_, low, high) => [0, Math.max(high ?? 0, least) * 1.05] },
      },
      axes: [{ ...axis, space: 90, values: (_, times) => times.map((at) => moment(at * 1000).slice(11, 19)) }, { ...axis, size: 72, incrs, values: (_, values) => values.map(format) }],
      series: [{ value: (_, at) => (at === null ? "now" : moment(at * 1000).slice(11, 19)) },
        ...series.map(([label, colour], i) => {
          const stroke = style.getPropertyValue(colour)
          const points = { show: false, filter: (_, i) => lone(history.columns[i]), size: 4, fill: stroke }
          return { label, stroke, width: 1.5, points, value: (_, value, __, at) => told(at === null ? history.columns[i + 1].at(-1) : value) }
        })],
    }, history.columns, box)
  }

  function begin() {
    make()
    sizes.observe(box)
    colours.addEventListener("change", make, { signal })
    signal.addEventListener("abort", () => {
      sizes.disconnect()
      plot.destroy()
    })
  }

  return { figure, begin, draw: () => plot.setData(history.columns) }
}

// Which values have none beside them: no line leads there, so each is a dot.
function lone(values) {
  const isThere = (i) => (values[i] ?? null) !== null
  return [...values.keys()].filter((i) => isThere(i) && !isThere(i - 1) && !isThere(i + 1))
}

// From the first time to the last, two minutes at least.
function span(times) {
  const last = times.at(-1) ?? Date.now() / 1000
  return [Math.min(times[0] ?? last, last - SPAN_S), last]
}

export function sparkline(values) {
  const most = Math.max(1e-9, ...values)
  const points = values.map((value, i) => `${(i * 100) / Math.max(1, values.length - 1)},${22 - (20 * value) / most}`).join(" ")
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polyline", { points }))
}
