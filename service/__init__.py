"""Who asks: the HTTP interface of the store, from the bytes of a request to the bytes of its answer.

The basics, in the order a request meets them: `server` listens and stops, `app` takes one request, `routing`
finds its route, `body` and `query` read it, `methods` parses the arguments (`wire`, `arguments`), asks the
store (`ports`) and renders the answer (`render`, whose shapes are in `answers`), `problems` renders a refusal.
`batch` does many commands at once, `views` what can be read with GET, `operations` what operators read.

The caveats: nothing here decides what a command may do, and nothing here keeps any state of the store. What a
caller sent as payload, label or checkpoint is never put into a message, a metric or a log line.
"""
