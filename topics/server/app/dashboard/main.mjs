// Which view is there: the part of the address behind "#/". A view is {title, element, start(signal)}, and what it began
// ends when its signal is aborted, which is when another one comes.
import { el, put } from "./dom.mjs"
import { askKey, silence } from "./api.mjs"
import { overview } from "./overview.mjs"
import { topic } from "./topic.mjs"
import { queues } from "./queues.mjs"
import { workers } from "./workers.mjs"
import { creating } from "./creating.mjs"
import { consumers } from "./consumers.mjs"
import { schedules } from "./schedules.mjs"
import { routers } from "./routers.mjs"
import { keys } from "./keys.mjs"
import { server } from "./server.mjs"
import { tellWords } from "./words.mjs"

const VIEWS = [
  ["", "Topics", overview],
  ["queues", "Queues", queues],
  ["workers", "Workers", workers],
  ["consumers", "Consumers", consumers],
  ["schedules", "Schedules", schedules],
  ["routers", "Routers", routers],
  ["keys", "Keys", keys],
  ["server", "Server", server],
]
const main = document.getElementById("main")
let leaving = new AbortController()
let shown = null

function show(isFirst) {
  if (location.hash !== "" && !location.hash.startsWith("#/")) return // the skip link
  let parts
  try {
    parts = location.hash.slice(2).split("/").map(decodeURIComponent)
  } catch {
    parts = ["?"]
  }
  const [asked, ...more] = parts, name = asked === "node" ? "server" : asked // as links of once have it
  leaving.abort()
  leaving = new AbortController()
  silence()
  const view = name === "new" ? creating() : name === "topics" && more.length > 0 ? topic(...more) : (VIEWS.find(([path]) => path === name)?.[2] ?? nowhere)(...more)
  const isSame = shown?.key !== undefined && shown.key === view.key // another tab of one topic
  document.title = `${view.title} · topics`
  put(main, view.element)
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.getAttribute("href") === `#/${name === "topics" || name === "new" ? "" : name}`
    if (isHere) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
  }
  if (!isFirst && !isSame) {
    main.querySelector("h1")?.focus()
    scrollTo(0, 0)
  } else if (isSame) {
    main.querySelector(".tabs [aria-current]")?.focus()
  }
  shown = view
  view.start(leaving.signal)
}

function nowhere() {
  return { title: "No such view", element: el("div", {}, el("h1", { tabindex: "-1" }, "There is no such view."), el("p", {}, el("a", { href: "#/" }, "All topics"))), start: () => {} }
}

put(document.getElementById("nav"), VIEWS.map(([path, text]) => el("a", { href: `#/${path}` }, text)))
document.getElementById("key").addEventListener("click", async () => {
  if (await askKey("The key with which this page asks the server.")) show(true)
})
document.getElementById("words").addEventListener("click", () => tellWords(main))
document.addEventListener("keydown", (event) => {
  if (!["/", "?"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return
  if (event.target.closest?.("input, textarea, select, dialog")) return
  if (event.key === "?") return tellWords(main)
  const search = main.querySelector("input[type=search]")
  if (search) {
    event.preventDefault()
    search.focus()
  }
})
addEventListener("hashchange", () => show(false))
show(true)
