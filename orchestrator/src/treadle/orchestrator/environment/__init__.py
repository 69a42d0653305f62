"""The home folder and the profile, with the variables of tasks and the Kafka connections."""
