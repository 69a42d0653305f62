"""Apache OpenWhisk as a provider of functions (extra `openwhisk`).

`client` sends the requests, `responses` interprets the replies (pure), `invoker` makes the calls, `action` builds the
documents for deployment, and `entry` runs in the action. Cited documents are those in apache/openwhisk.
"""
