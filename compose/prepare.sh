#!/bin/sh
# Make the secrets of docker-compose.yml, once: the deployment key, the database's password, the object store's identity.
# They are in compose/private, a folder that only you may enter, and in .env (mode 0600).
set -eu
cd "$(dirname "$0")/.."
private=compose/private
if [ -e .env ] || [ -e "$private" ]; then
    echo "there is a .env or $private already; remove both to begin anew (runs under way cannot be resumed then)" >&2
    exit 1
fi
umask 077
word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

mkdir -p "$private/home"
head -c 32 /dev/urandom > "$private/key"      # the worker's
cp "$private/key" "$private/home/key"         # yours, for commands on this host
cp compose/profiles.toml "$private/home/profiles.toml"
access=$(word)
secret=$(word)
cat > "$private/s3.json" <<JSON
{"identities": [{"name": "treadle", "credentials": [{"accessKey": "$access", "secretKey": "$secret"}],
  "actions": ["Read", "Write", "List", "Tagging"]}]}
JSON
chmod 644 "$private/s3.json" # the object store runs as a user of its own; the folder keeps others out
user=$(id -u)
group=$(id -g)
if [ "$user" = 0 ]; then # the worker does not run as root
    user=10001 group=10001
    chown "$user:$group" "$private/key"
fi
cat > .env <<ENV
POSTGRES_PASSWORD=$(word)
AWS_ACCESS_KEY_ID=$access
AWS_SECRET_ACCESS_KEY=$secret
TREADLE_UID=$user
TREADLE_GID=$group
ENV
echo "written: .env, $private"
