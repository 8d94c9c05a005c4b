// A view of one table whose rows are found by the beginning of their names. All are looked up every so often, and drawn
// anew then and as somebody types.
import { beginning, el, emptyRow, put, renew, table } from "./dom.mjs"
import { poll } from "./api.mjs"

// `look(signal)`: {entries, about}, what there is as [name, key, cells of its row in a function], and what is said above
// the table. `one`: what it is a list of, as it says that there is none; `none`: that there is none at all.
export function foundByName({ title, one, caption, columns, every_ms, none, look }) {
  const body = el("tbody"), about = el("p", { class: "quiet" })
  let prefix = "", entries = null
  const search = beginning(title, (typed) => { prefix = typed; if (entries !== null) draw() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, title), el("p", { class: "bar" }, search), about, table(caption, columns, body))

  const start = (signal) => poll(signal, every_ms, async () => {
    const found = await look(signal)
    entries = found.entries
    put(about, found.about)
    draw()
  })

  function draw() {
    const shown = entries.filter(([name]) => name.startsWith(prefix))
    if (shown.length > 0) renew(body, shown.map(([, key, rowOf]) => [key, rowOf()]))
    else put(body, emptyRow(columns, prefix ? `No ${one} begins so.` : none))
  }
  return { title, element, start }
}
