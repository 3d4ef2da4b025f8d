"""`make kafka-demo`: a broker, a producer and a pipeline, its lag on the screen, and the answer.

`producer` sends orders, `topic` is what a plain client sees of them. `story` runs the pipeline as
`laminar run orders --forever` (`processes`), follows it from outside (`watch`) and kills it once.
`screen` draws what it finds. `answer` says what must come of the topic, without the engine.
"""
