// The config of a topic. What was changed is sent alone (PATCH), so that two who change different fields both have their way.
import { el, put, field } from "./dom.mjs"
import { attempt, call, Refused, tell } from "./api.mjs"

const FIXED = new Set(["type", "durable", "replicated"]) // never changes; told by `durability`; not built yet
const OF_QUEUES = "lease_ms"

export function changing(topic) {
  const form = el("form", { onsubmit: save, class: "fields" }), said = el("p", { role: "status" })
  let config = null, means = new Map(), inputs = new Map(), signal

  const load = () => attempt(element, async () => {
    const [state, known] = await Promise.all([call("topic", { params: { topic }, query: { touch: false }, signal }), meanings().catch(() => new Map())])
    config = state.config
    means = known
    draw()
  })

  function draw() {
    const names = Object.keys(config)
    const shown = config.type === "queue" ? names : names.slice(0, names.indexOf(OF_QUEUES))
    inputs = new Map(shown.map((name) => [name, inputOf(config[name], FIXED.has(name))]))
    put(form, [...inputs].map(([name, input]) => described(name, input, means.get(name))), el("p", { class: "buttons" }, el("button", { type: "submit" }, "Change")))
  }

  async function save(event) {
    event.preventDefault()
    const changes = {}
    for (const [name, input] of inputs) {
      input.removeAttribute("aria-invalid")
      try {
        const value = valueOf(input, config[name])
        if (JSON.stringify(value) !== JSON.stringify(config[name])) changes[name] = value
      } catch {
        input.setAttribute("aria-invalid", "true")
        input.focus()
        put(said, `${name}: is not JSON, as in {"base_ms": 1000, "factor": 2, "max_ms": 60000} or null`)
        return
      }
    }
    if (Object.keys(changes).length === 0) {
      put(said, "Nothing was changed.")
      return
    }
    try {
      const answer = await call("configure", { params: { topic }, body: changes, signal })
      config = answer.config
      draw()
      put(said, `Changed: ${Object.keys(changes).map((name) => `${name} is ${JSON.stringify(config[name])}`).join(", ")}.`)
    } catch (error) {
      if (!(error instanceof Refused)) return tell(error, element)
      put(said, error.message)
      inputs.get(error.detail.field?.replace(/^config\./, ""))?.setAttribute("aria-invalid", "true")
    }
  }

  const element = el("section", { "aria-label": "Config" }, form, said)
  return { element, start: (until) => { signal = until; load() } }
}

// What each field means, in the server's words.
async function meanings() {
  const { components: { schemas } } = await call("openapi")
  const meant = ({ description, oneOf = [] }) => description ?? oneOf.map(({ $ref }) => schemas[$ref?.split("/").at(-1)]?.description).find(Boolean) ?? ""
  return new Map(Object.entries(schemas.FullConfig.properties).map(([name, schema]) => [name, meant(schema).replaceAll("`", "").replace(/^Queues: (.)/, (_, first) => first.toUpperCase())]))
}

// The name of the field alone is its label; what it means is read behind it.
function described(name, input, meaning) {
  if (!meaning) return field(name, input)
  input.setAttribute("aria-describedby", `means-${name}`)
  return el("div", {}, field(name, input), el("p", { class: "quiet means", id: `means-${name}` }, meaning))
}

function inputOf(value, isFixed) {
  if (typeof value === "boolean") return el("input", { type: "checkbox", checked: value, disabled: isFixed })
  if (typeof value === "number") return el("input", { type: "number", value: String(value), min: "0", required: true, disabled: isFixed })
  if (typeof value === "string") return el("input", { type: "text", value, disabled: isFixed, "data-text": true, spellcheck: "false" })
  return el("input", { type: "text", value: JSON.stringify(value), disabled: isFixed, spellcheck: "false" })
}

function valueOf(input, before) {
  if (input.type === "checkbox") return input.checked
  if (input.type === "number") return Number(input.value)
  if ("text" in input.dataset || (before === null && /^[A-Za-z0-9]/.test(input.value) && !/^(null$|-?\d)/.test(input.value))) return input.value
  return JSON.parse(input.value)
}
