"""Events out: drivers tell that runs and stages begin and end, so that workflows can chain.

General layout: `news` (pure: the events, their ids, the JSON of CloudEvents), `outlets` (a Kafka topic, a webhook),
`announcer` (tries, gives up), `untold` (what nobody took), `telling` (what activities call).
"""
