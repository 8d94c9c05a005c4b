// Schedules: what is put where and when, the last time and the next.
import { beginning, button, data, el, emptyRow, period, put, renew, row, table, time } from "./dom.mjs"
import { call, poll } from "./api.mjs"

const LIST_MS = 3000, PAGE_SIZE = 100
const COLUMNS = [["Schedule", "name"], ["Topic", "name"], ["When"], ["Last", "wide"], ["Next"], ["If missed", "wide"], ["Record", "fill wide"]]

export function schedules() {
  const body = el("tbody"), pages = el("p", { class: "buttons" })
  let prefix = "", cursors = [undefined], look = async () => {}
  const turn = () => look().catch(() => {})
  const search = beginning("Schedules", (typed) => { prefix = typed; cursors = [undefined]; turn() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Schedules"), el("p", { class: "bar" }, search, pages), table("Schedules", COLUMNS, body))

  const start = (signal) => {
    look = async () => {
      const asked = `${prefix} ${cursors.at(-1)}`
      const { schedules, next_cursor: next } = await call("schedules", { query: { prefix, page_size: PAGE_SIZE, cursor: cursors.at(-1) }, signal })
      if (asked !== `${prefix} ${cursors.at(-1)}`) return // another page was asked for meanwhile
      if (schedules.length > 0) renew(body, schedules.map((one) => [one.schedule, scheduleRow(one)]))
      else put(body, emptyRow(COLUMNS, prefix ? "No schedule begins so." : "There are no schedules."))
      put(pages, cursors.length > 1 && button("← Before", () => { cursors.pop(); turn() }), next && button("More →", () => { cursors.push(next); turn() }))
    }
    poll(signal, LIST_MS, () => look())
  }
  return { title: "Schedules", element, start }
}

function scheduleRow({ schedule, topic, cron, every_ms: every, timezone, last_fired: last, next_fire: next, catch_up: missed, record }) {
  return row(COLUMNS,
    data(schedule), el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/live` }, topic),
    el("span", {}, cron === null ? `every ${period(every)}` : el("code", {}, cron), cron === null || timezone === "UTC" ? "" : ` ${timezone}`),
    time(last), next === null ? "never again" : time(next), missed, data(record))
}
