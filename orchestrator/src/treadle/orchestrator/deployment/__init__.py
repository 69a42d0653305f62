"""Making providers ready for tasks: `treadle deploy lambda` and `treadle deploy openwhisk`.

General layout: `settings` is what a profile says about it, `wanted` compares what there should be with what there is
(pure), `request` brings a command's wishes, package and secrets together, `aws` and `openwhisk` read and change the
provider, `template` writes CloudFormation instead.
"""
