"""`make demo`: a clickstream of a million events, a worker that is killed twice, and the answer.

`generator` writes the input. `worker` runs `laminar run clickstream` as a process that can be
killed with all its children, `watch` looks at the store and the sinks from outside, and `story`
chooses the moments. `answer` says what must come of the input, without the engine, and compares.
"""
