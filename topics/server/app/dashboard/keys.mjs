// Keys: whose they are, what each may and where, and what it does now. What lets somebody in is known to nobody here.
import { count, data, el, emptyRow, put, renew, row, table, time } from "./dom.mjs"
import { call, poll, Refused } from "./api.mjs"

const LIST_MS = 3000
const COLUMNS = [["Key", "name"], ["Id", "wide"], ["May"], ["Names"], ["Last used"], ["Requests", "n wide"], ["Streams", "n wide"], ["Watches", "n wide"]]
const OPEN = ["No key is asked for: whoever reaches this server may read, write and delete. How to make some: ", el("code", {}, "topics key --help"), "."]
const HOW = [el("code", {}, "topics key new"), " and ", el("code", {}, "topics key revoke"), " change them. Last used: by a request that was let in, since the server's start."]

export function keys() {
  const body = el("tbody"), about = el("p", { class: "quiet" }), list = el("div")
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Keys"), about, list)
  let mayAsk = true

  const start = (signal) => poll(signal, LIST_MS, async () => {
    if (!mayAsk) return
    try {
      const { auth, keys } = await call("keys", { signal })
      put(about, auth ? HOW : OPEN)
      if (!auth) return put(list)
      if (!list.hasChildNodes()) put(list, table("Keys", COLUMNS, body))
      if (keys.length > 0) renew(body, keys.map((one) => [one.id, keyRow(one)]))
      else put(body, emptyRow(COLUMNS, "No key is left: nobody may ask for anything but this page."))
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 403) throw error
      mayAsk = false // another key is another page
      put(about, error.message)
      put(list)
    }
  })
  return { title: "Keys", element, start }
}

function keyRow({ id, name, scopes, prefixes, asks, used_ts: used, requests, streams, watches }) {
  return row(COLUMNS,
    [name === "" ? el("span", { class: "quiet" }, "unnamed") : data(name), asks && el("strong", {}, " yours")],
    el("code", {}, id), scopes.join(", "), prefixes.length === 0 ? "any" : data(prefixes.map((prefix) => `${prefix}*`).join(" ")),
    used === null ? "not yet" : time(used), count(requests), count(streams), count(watches))
}
