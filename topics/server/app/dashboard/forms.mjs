// What the forms have alike: inputs, what is typed into them with all of its digits, and what becomes of a refusal.
import { el, put, short } from "./dom.mjs"
import { exact, notice, Refused, tell } from "./api.mjs"

export const text = (more) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...more })
export const number = (more) => el("input", { type: "number", min: "0", step: "1", inputmode: "numeric", ...more })
export const whole = (typed) => (Number.isSafeInteger(Number(typed)) ? Number(typed) : exact(typed))

// A record's data as it is typed; refused as the server would if it is not JSON.
export function json({ value }) {
  try {
    return exact(value)
  } catch (error) {
    throw new Refused(400, { code: "invalid_request", message: `The data is not JSON (${short(error.message, 120)}). A text stands in quotes: "hello".`, detail: { field: "data" } })
  }
}

// What a form does when it is sent, once at a time. What it is refused for is told in `said`; the input that is meant is marked
// and has the focus. `inputs`: by the API's names.
export function sending(inputs, said, act) {
  let isSent = false
  return async (event) => {
    event.preventDefault()
    if (isSent) return
    isSent = true
    for (const input of inputs.values()) input.removeAttribute("aria-invalid")
    notice(said, "")
    put(said)
    try {
      await act()
    } catch (error) {
      if (!(error instanceof Refused)) return tell(error, said)
      put(said, error.message)
      const wrong = inputs.get(error.detail.field?.replace(/^(config|record|records\[0\])\./, ""))
      wrong?.setAttribute("aria-invalid", "true")
      wrong?.focus()
    } finally {
      isSent = false
    }
  }
}
