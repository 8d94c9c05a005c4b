// Elements, and numbers as people read them. Whatever is shown goes into the page as text, never as HTML: names, tags and
// payloads are written by anybody. There is no way here to set a style or a script from a string, and the page's policy
// has none either.
import { MEANINGS } from "./meanings.mjs"

export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children)
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children)
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value)
    else element.setAttribute(key, value === true ? "" : value)
  }
  put(element, ...children)
  return element
}

// The children of an element from now on.
export function put(element, ...children) {
  element.replaceChildren(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

// A text that somebody else has written: marks that are not seen, or that turn the text around, are spelled out.
const UNSEEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu
export function shown(text) {
  return text.replace(UNSEEN, (mark) => mark.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""))
}

// A value of somebody's JSON in a cell, whatever it is.
export function data(value, most = 160) {
  if (value === undefined) return ""
  return el("span", { class: "data" }, short(shown(short(typeof value === "string" ? value : JSON.stringify(value), most)), most))
}

// Not more of a text than `most`, cut between characters.
export function short(text, most) {
  if (text.length <= most) return text
  const end = /[\ud800-\udbff]/.test(text[most - 1]) ? most - 1 : most
  return `${text.slice(0, end)}…`
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
export const count = (n) => whole.format(n)

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
  let unit = 0
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`
}

export function rate(n) {
  return n === null || n === undefined ? "" : n >= 10 || n === 0 ? count(n) : n.toFixed(1)
}

export function duration(ms) {
  if (ms === 0) return "0 ms"
  if (ms < 1) return `${(ms * 1000).toFixed(0)} µs`
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
  const s = ms / 1000
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`
}

// How long it is exactly, in the largest unit of which it is a whole number.
export function period(ms) {
  const [unit, size] = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000], ["ms", 1]].find(([, size]) => ms % size === 0)
  return `${count(ms / size)} ${unit}`
}

// A moment in the time of whoever looks, and how far it is from now.
export function moment(ms) {
  if (ms === null || ms === undefined) return "never"
  const at = new Date(ms)
  if (Number.isNaN(at.getTime())) return String(ms)
  const two = (n, width = 2) => String(n).padStart(width, "0")
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`
}

export function ago(ms, now = Date.now()) {
  if (ms === null || ms === undefined) return "never"
  return ms <= now ? `${duration(now - ms)} ago` : `in ${duration(ms - now)}`
}

export function time(ms) {
  if (ms === null || ms === undefined) return "never"
  if (Number.isNaN(new Date(ms).getTime())) return shown(String(ms))
  return el("time", { datetime: new Date(ms).toISOString(), title: moment(ms) }, ago(ms))
}

// A name as the first cell of its row, with what can be done to it: `renew` leaves both as they are.
export function named(name, ...buttons) {
  return el("div", { class: "named" }, data(name), el("span", { class: "buttons" }, buttons))
}

// A table. `columns`: what heads them, with a class or null; wide ones go away where the screen is narrow.
export function table(caption, columns, rows, more = {}) {
  const head = columns.map(([text, kind]) => el("th", { scope: "col", class: kind }, word(text)))
  const body = rows instanceof Node ? rows : el("tbody", {}, rows)
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, ...more },
    el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, head)), body))
}

// The rows of a table from now on, as [key, row]. One that was there stays and only its further cells are new, but for
// one that has the focus.
export function renew(body, rows) {
  const old = new Map([...body.children].map((tr) => [tr.dataset.key, tr]))
  const now = rows.map(([key, tr]) => {
    tr.dataset.key = key
    const before = old.get(key)
    if (before === undefined || before.cells.length !== tr.cells.length) return tr
    for (let i = 1; i < before.cells.length; i++) {
      const fresh = tr.cells[1]
      if (before.cells[i].contains(document.activeElement)) fresh.remove()
      else before.cells[i].replaceWith(fresh)
    }
    return before
  })
  if (now.length === body.children.length && now.every((tr, i) => tr === body.children[i])) return
  const focused = document.activeElement
  put(body, now)
  if (body.contains(focused)) focused.focus()
}

export function emptyRow(columns, text) {
  return el("tr", {}, el("td", { colspan: columns.length, class: "quiet" }, text))
}

export function row(columns, ...cells) {
  return el("tr", {}, cells.map((cell, i) => el("td", { class: columns[i][1] }, cell)))
}

export function facts(...pairs) {
  return el("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) =>
    el("div", {}, el("dt", {}, word(name)), el("dd", {}, value))))
}

// A word that is told by what it means, if it is one of those: `words.mjs`.
function word(text) {
  return Object.hasOwn(MEANINGS, text) ? el("span", { class: "word", title: MEANINGS[text] }, text) : text
}

export function button(text, onclick, more = {}) {
  const press = (event) => {
    if (made.getAttribute("aria-disabled") !== "true") return onclick(event)
    made.parentElement.querySelector(":scope > [role=status]").textContent = made.title
  }
  const made = el("button", { type: "button", onclick: press, ...more }, text)
  return made
}

// From now on the button would do nothing, and why; false: it does something. It stays where the keyboard finds it, and the
// status beside it says why when it is pressed.
export function unable(button, why) {
  button.setAttribute("aria-disabled", String(Boolean(why)))
  button.title = why || ""
}

export function field(text, input) {
  return el("label", {}, el("span", {}, text), input)
}

export function choice(values) {
  return el("select", {}, values.map((value) => el("option", { value }, value)))
}

// Where the beginning of names is typed, of which alone a list is to be; "/" goes there.
export function beginning(what, look) {
  const input = el("input", { type: "search", placeholder: "begins with …", autocomplete: "off", spellcheck: "false", maxlength: "255" })
  input.addEventListener("input", () => look(input.value))
  return field(what, input)
}

// A dialog, open until it is closed or the view is left for another one; then what it was closed with.
export function opened(dialog) {
  return new Promise((done) => {
    const left = new AbortController()
    addEventListener("hashchange", () => dialog.close(""), { signal: left.signal })
    dialog.addEventListener("close", () => { left.abort(); dialog.remove(); done(dialog.returnValue) })
    document.body.append(dialog)
    dialog.showModal()
  })
}

// Asks before something that cannot be taken back; true if it is to be done. `typed`: what is to be typed first.
export async function sure(text, action, typed = "") {
  const input = el("input", { type: "text", autocomplete: "off", spellcheck: "false" })
  const act = button(action, () => dialog.close("yes"), { class: "danger" })
  const wait = () => unable(act, input.value !== typed && `Type ${typed} first.`)
  const dialog = el("dialog", {}, el("p", {}, text), typed !== "" && field(`Type ${typed} to go on`, input),
    el("p", { class: "buttons" }, button("Cancel", () => dialog.close("")), act, el("span", { class: "quiet", role: "status" })))
  input.addEventListener("input", wait)
  wait()
  return (await opened(dialog)) === "yes"
}
