"""The home folder and the profile: where everything is."""
