"""Preparation of providers for tasks: `treadle deploy lambda` and `treadle deploy openwhisk`.

settings               the deploy tables of a profile
desired_state          compares wanted resources with existing ones (pure)
request                a command's options with package, key and secrets
owner                  the profile that owns a deployed resource
lambda_desired_state   the wanted functions on Lambda (pure)
lambda_functions       reads and changes functions on Lambda
aws_role_api           reads and changes the functions' role
aws_keys               the deployment key in Secrets Manager or Systems Manager
aws_policies           IAM policies of driver, deployer and functions
role_policies          the policy of the functions' role
cloudformation         the same resources as a CloudFormation template
openwhisk              reads and changes actions on OpenWhisk
hello                  tries a deployed function
"""
