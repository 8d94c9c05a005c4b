// The server, asked. Every route that the dashboard knows stands here; a key goes as a header and is kept for this tab.
import { el, button } from "./dom.mjs"

export const CALLS = {
  health: "GET /v0/health",
  ready: "GET /v0/ready",
  metrics: "GET /v0/metrics",
  openapi: "GET /v0/openapi.json",
  topics: "GET /v0/topics",
  topic: "GET /v0/topics/{topic}",
  create: "PUT /v0/topics/{topic}",
  drop: "DELETE /v0/topics/{topic}",
  write: "POST /v0/topics/{topic}",
  configure: "PATCH /v0/topics/{topic}",
  read: "POST /v0/topics/{topic}/diff",
  remove: "POST /v0/topics/{topic}/delete",
  why: "GET /v0/topics/{topic}/why",
  consumers: "GET /v0/topics/{topic}/consumers",
  move: "PUT /v0/topics/{topic}/consumers/{consumer}",
  end_consumer: "DELETE /v0/topics/{topic}/consumers/{consumer}",
  peek: "POST /v0/topics/{topic}/peek",
  redrive: "POST /v0/topics/{topic}/redrive",
  pause: "POST /v0/topics/{topic}/pause",
  resume: "POST /v0/topics/{topic}/resume",
  purge: "POST /v0/topics/{topic}/purge",
  watch: "POST /v0/watch",
  events: "GET /v0/watch/{wid}",
  schedules: "GET /v0/schedules",
  schedule: "GET /v0/schedules/{schedule}",
  put_schedule: "PUT /v0/schedules/{schedule}",
  end_schedule: "DELETE /v0/schedules/{schedule}",
  routers: "GET /v0/routers",
  put_router: "PUT /v0/routers/{router}",
  end_router: "DELETE /v0/routers/{router}",
  pressure: "GET /v0/admin/pressure",
  keys: "GET /v0/admin/keys",
}
const OF_RECORDS = new Set(["read", "peek", "schedules"]) // what they answer has payloads in it
const KEY = "topics.key"
const PATIENCE_MS = 30_000, FIRST_REST_MS = 1000

export class Refused extends Error {
  constructor(status, { code, message, detail }) {
    super(message)
    this.status = status
    this.code = code
    this.detail = detail ?? {}
  }
}

// An answer of the API.
export async function call(name, { params, query, body, signal } = {}) {
  const patience = AbortSignal.timeout(PATIENCE_MS)
  const answer = await ask(name, { params, query, body, signal: signal ? AbortSignal.any([signal, patience]) : patience })
  return OF_RECORDS.has(name) ? exact(await answer.text()) : await answer.json()
}

// The answer as it comes, good; 401 asks for another key and then once more.
export async function ask(name, { params = {}, query = {}, body, headers = {}, signal }) {
  const [method, path] = CALLS[name].split(" ")
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""))
  const url = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(params[name])) + (asked.size ? `?${asked}` : "")
  for (;;) {
    const key = sessionStorage.getItem(KEY)
    const sent = { accept: "application/json", ...headers }
    if (key !== null) sent.authorization = `Bearer ${key}`
    if (body !== undefined) sent["content-type"] = "application/json"
    const answer = await fetch(url, {
      method, headers: sent, signal, body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store", redirect: "error", referrerPolicy: "no-referrer",
    })
    if (answer.ok) return answer
    const refused = await refusal(answer)
    if (answer.status !== 401) throw refused
    if (key === sessionStorage.getItem(KEY) && (isDeclined || !(await askKey(refused.message)))) throw refused
  }
}

async function refusal(answer) {
  try {
    return new Refused(answer.status, (await answer.json()).error)
  } catch {
    return new Refused(answer.status, { code: "unknown", message: `the server answered ${answer.status}` })
  }
}

// A payload's JSON: numbers keep their spelling where the browser can tell it (3.10, 2^60); what is not shown is the white space.
const canTell = typeof JSON.rawJSON === "function"
export function exact(text) {
  if (!canTell) return JSON.parse(text)
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source
      ? JSON.rawJSON(context.source) : value)
}

// The key.

let asking = null
let isDeclined = false // then it is asked for by the button only

export function askKey(why) {
  asking ??= new Promise((done) => {
    const input = el("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, id: "a-key", pattern: "\\s*[!-~]+\\s*", title: "A key is of visible ASCII characters" })
    const dialog = el("dialog", { "aria-labelledby": "why", onclose: () => {
      dialog.remove()
      asking = null
      isDeclined = dialog.returnValue !== "yes"
      done(!isDeclined)
    } },
      el("form", { onsubmit: (event) => {
        event.preventDefault()
        sessionStorage.setItem(KEY, input.value.trim())
        dialog.close("yes")
      } },
      el("p", { id: "why" }, why),
      el("label", { for: "a-key" }, "Key"), input,
      el("p", { class: "quiet" }, "It is sent with each request, and kept in this tab until that is closed."),
      el("p", { class: "buttons" },
        button("Cancel", () => dialog.close("")),
        sessionStorage.getItem(KEY) === null ? null : button("Forget it", () => { sessionStorage.removeItem(KEY); dialog.close("yes") }),
        el("button", { type: "submit" }, "Use it"))))
    document.body.append(dialog)
    dialog.showModal()
  })
  return asking
}

// What is asked again and again while a view is there. Nobody is asked for a page that is not seen; once it is seen again it is
// asked at once. Rates are known from the second look on, so that one comes soon.

export async function poll(signal, every_ms, look) {
  const owner = {}
  for (let rest_ms = Math.min(every_ms, FIRST_REST_MS); ; rest_ms = every_ms) {
    if (document.hidden) await seenAgain(signal)
    if (signal.aborted) return
    try {
      await look()
      notice(owner, "")
    } catch (error) {
      if (signal.aborted) return
      tell(error, owner)
    }
    await pause(rest_ms, signal)
  }
}

function seenAgain(signal) {
  return new Promise((done) => {
    document.addEventListener("visibilitychange", done, { once: true, signal })
    signal.addEventListener("abort", done, { once: true })
  })
}

export function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(end, ms)
    function end() {
      clearTimeout(timer)
      signal?.removeEventListener("abort", end)
      done()
    }
    signal?.addEventListener("abort", end)
  })
}

// Something that was asked for once. What was wrong is told until it is asked for again, or the view is left.
export async function attempt(owner, act) {
  notice(owner, "")
  try {
    await act()
  } catch (error) {
    tell(error, owner)
  }
}

// What the page says in one line, each of its own; "" takes it away.
const notices = new Map()
export function notice(owner, text) {
  if (text === "") notices.delete(owner)
  else notices.set(owner, text)
  const line = document.getElementById("notice"), all = [...new Set(notices.values())].join(" ")
  if (line.textContent !== all) line.textContent = all
}

export function silence() {
  notices.clear()
  notice(null, "")
}

export function tell(error, owner) {
  if (error instanceof Refused) {
    const progress = error.detail.replay_progress
    const more = progress === undefined ? "" : ` (${Math.floor(progress * 100)} %)`
    notice(owner, `${error.status} ${error.code}: ${error.message}${more}`)
  } else if (error instanceof TypeError || error.name === "TimeoutError" || error.name === "NetworkError") {
    if (error instanceof TypeError && !/fetch|network|load/i.test(error.message)) console.error(error)
    notice(owner, "The server does not answer. It is asked again.")
  } else if (error.name !== "AbortError") {
    console.error(error)
    notice(owner, String(error))
  }
}
