"""Function providers emulated by processes on this machine: code that passes here passes at the provider.

`provider_limits` holds each provider's limits and behaviour as data. `invoker` runs sandboxes instead of calling the
provider. `sandbox` is the process of one sandbox, with the same handler as the provider's function.
"""
