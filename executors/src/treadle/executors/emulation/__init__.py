"""Providers of functions emulated by processes of this machine, so that what passes here passes there.

`emulations` (what each provider allows and does, as data), `invoker` (sandboxes in place of the provider), `sandbox`
(the process of one, which runs the same handler as the provider's function).
"""
